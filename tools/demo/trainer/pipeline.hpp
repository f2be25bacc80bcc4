// SPDX-License-Identifier: Apache-2.0
// Forward and backward through the stages, as in Huang et al., "GPipe" (2018): the samples are cut into micro-batches,
// so that the second stage is at the first one while the first is at the second one.
#pragma once

#include "language_model.hpp"
#include "process_groups.hpp"

#include <ATen/core/Tensor.h>

namespace trainer {

/// Adds to the gradients of what this rank has. `samples` are of shape [samples, context + 1], at least one. Gives the
/// sum of the losses of all bytes, times `scale`, on the last stage and zero elsewhere.
[[nodiscard]] at::Tensor forward_and_backward(const LanguageModel& model, const Options& options, const Place& place,
                                              const Group& group, const at::Tensor& samples, double scale);

}  // namespace trainer
