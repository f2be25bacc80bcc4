// SPDX-License-Identifier: Apache-2.0
// The kernels, compiled for whatever the whole library is compiled for.
#define CKPT_KERNELS kernels_plain
#include "codec/kernels_loops.hpp"
