// SPDX-License-Identifier: Apache-2.0
// The kernels, compiled for processors with AVX512.
#define CKPT_KERNELS kernels_avx512
#include "codec/kernels_loops.hpp"
