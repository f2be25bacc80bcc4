// SPDX-License-Identifier: Apache-2.0
// A decoder as in GPT-2: from bytes, what byte comes next. A rank has the layers of its stage, and of these its heads
// and its part of the MLP's width.
#pragma once

#include "model_parameters.hpp"
#include "process_groups.hpp"
#include "trainer_options.hpp"

#include <ATen/core/Tensor.h>

#include <string>

namespace trainer {

class LanguageModel {
 public:
  /// All are referred to.
  LanguageModel(const Options& options, const Place& place, const Parameters& parameters, const Group& group);

  /// `x`: tokens, of shape [samples, context], on the first stage; what the stage before made, [samples, context,
  /// width], on others. Gives logits on the last stage.
  [[nodiscard]] at::Tensor forward(at::Tensor x) const;

 private:
  [[nodiscard]] at::Tensor norm(const std::string& name, const at::Tensor& x) const;
  [[nodiscard]] at::Tensor attention(const std::string& block, const at::Tensor& x) const;
  [[nodiscard]] at::Tensor mlp(const std::string& block, const at::Tensor& x) const;

  const Options& options_;
  const Place& place_;
  const Parameters& parameters_;
  const Group& group_;
  at::Tensor mask_;  ///< minus infinity where a token would look ahead
};

}  // namespace trainer
