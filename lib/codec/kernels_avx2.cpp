// SPDX-License-Identifier: Apache-2.0
// The kernels, compiled for processors with AVX2.
#define CKPT_KERNELS kernels_avx2
#include "codec/kernels_loops.hpp"
