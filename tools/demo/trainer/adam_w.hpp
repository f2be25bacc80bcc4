// SPDX-License-Identifier: Apache-2.0
// Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (2017).
#pragma once

#include "model_parameters.hpp"

#include <cstdint>

namespace trainer {

/// Step `step` (from 1 on) with the gradients times `scale`; all ranks make the same.
void adam_w(Parameters& parameters, std::int64_t step, double lr, double scale);

}  // namespace trainer
