// SPDX-License-Identifier: Apache-2.0
// A pair of linear layers over the ranks of a group, as in Shoeybi et al., "Megatron-LM" (2019): the first is split by
// its outputs (columns of the transposed weight), the second by its inputs (rows), so that what is between them, heads
// of attention or the width of an MLP, is never seen whole by anyone. The pair begins with enter() and ends with
// leave(); each sums over the group in one direction and does nothing in the other.
#pragma once

#include "process_groups.hpp"

#include <ATen/core/Tensor.h>

namespace trainer {

/// The same `x` on all ranks. Backward: each has the gradient that came through its columns; `x` gets their sum.
[[nodiscard]] at::Tensor enter(const at::Tensor& x, const Group& group);

/// Forward: each has what its rows contribute; all get the sum. Backward: the gradient is everyone's as it is.
[[nodiscard]] at::Tensor leave(const at::Tensor& x, const Group& group);

}  // namespace trainer
