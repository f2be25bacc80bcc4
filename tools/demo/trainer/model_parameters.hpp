// SPDX-License-Identifier: Apache-2.0
// The parameters that a rank holds, each a whole tensor or a part of one, with what the optimizer knows of it. Their
// first values come from seed and name alone, so that they're the same however the model is split.
#pragma once

#include "process_groups.hpp"
#include "trainer_options.hpp"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace trainer {

struct ParameterSpec {
  std::string name;
  std::vector<std::int64_t> shape;  ///< of the whole
  int split;                        ///< the dimension that's split over the tensor group; -1: each has the whole
  std::int64_t stage;
  double mean;
  double deviation;
};

/// Of the whole model, in one order for all ranks.
[[nodiscard]] std::vector<ParameterSpec> parameters_of_model(const Options& options);

struct Parameter {
  ParameterSpec spec;
  std::vector<std::int64_t> offsets;  ///< where `value` begins in the whole
  at::Tensor value;
  at::Tensor exp_avg;
  at::Tensor exp_avg_sq;

  [[nodiscard]] bool is_part() const { return value.sizes() != at::IntArrayRef(spec.shape); }
};

class Parameters {
 public:
  Parameters(const Options& options, const Place& place);

  [[nodiscard]] std::vector<Parameter>& all() { return all_; }
  [[nodiscard]] const std::vector<Parameter>& all() const { return all_; }
  [[nodiscard]] const at::Tensor& at(const std::string& name) const { return all_[numbers_.at(name)].value; }

  /// All gradients in a row, and one number behind them, for the loss. Those of the parameters are views on it, so
  /// that one all_reduce has them all, and nothing is copied.
  [[nodiscard]] const at::Tensor& bucket() const { return bucket_; }

 private:
  std::vector<Parameter> all_;
  std::unordered_map<std::string, std::size_t> numbers_;
  at::Tensor bucket_;
};

/// FNV-1a over a digest so far and more bytes.
[[nodiscard]] std::uint64_t fnv1a(std::uint64_t digest, const void* bytes, std::size_t size);
inline constexpr std::uint64_t fnv1a_basis = 0xcbf29ce484222325U;

}  // namespace trainer
