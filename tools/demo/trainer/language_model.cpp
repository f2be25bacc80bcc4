// SPDX-License-Identifier: Apache-2.0
#include "language_model.hpp"

#include "parallel_layers.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>

#include <cmath>
#include <limits>

namespace trainer {

LanguageModel::LanguageModel(const Options& options, const Place& place, const Parameters& parameters,
                             const Group& group)
    : options_(options),
      place_(place),
      parameters_(parameters),
      group_(group),
      mask_(at::full({options.context, options.context}, -std::numeric_limits<float>::infinity()).triu(1)) {}

at::Tensor LanguageModel::forward(at::Tensor x) const {
  if (place_.is_first_stage())
    x = at::embedding(parameters_.at("embed.tokens.weight"), x) + parameters_.at("embed.positions.weight");
  for (std::int64_t layer = 0; layer < options_.layers; ++layer) {
    if (layer * place_.pp / options_.layers != place_.stage) continue;
    const std::string block = "blocks." + std::to_string(layer) + ".";
    x = x + attention(block, norm(block + "norm1", x));
    x = x + mlp(block, norm(block + "norm2", x));
  }
  if (place_.is_last_stage()) x = at::linear(norm("norm", x), parameters_.at("head.weight"));
  return x;
}

at::Tensor LanguageModel::norm(const std::string& name, const at::Tensor& x) const {
  return at::layer_norm(x, {options_.width}, parameters_.at(name + ".weight"), parameters_.at(name + ".bias"));
}

at::Tensor LanguageModel::attention(const std::string& block, const at::Tensor& x) const {
  const std::string name = block + "attention.";
  const std::int64_t heads = options_.heads / place_.tp;
  const std::int64_t size = options_.width / options_.heads;
  const at::Tensor qkv = at::linear(enter(x, group_), parameters_.at(name + "qkv.weight").flatten(0, 1),
                                    parameters_.at(name + "qkv.bias").flatten(0, 1))
                             .view({x.size(0), x.size(1), 3, heads, size})
                             .permute({2, 0, 3, 1, 4});  // [3, samples, heads, context, size]
  const at::Tensor scores = at::matmul(qkv[0], qkv[1].transpose(-2, -1)) / std::sqrt(static_cast<double>(size)) + mask_;
  const at::Tensor seen = at::matmul(at::softmax(scores, -1), qkv[2]).transpose(1, 2).flatten(2, 3);
  return leave(at::linear(seen, parameters_.at(name + "out.weight")), group_) + parameters_.at(name + "out.bias");
}

at::Tensor LanguageModel::mlp(const std::string& block, const at::Tensor& x) const {
  const std::string name = block + "mlp.";
  const at::Tensor wide =
      at::gelu(at::linear(enter(x, group_), parameters_.at(name + "up.weight"), parameters_.at(name + "up.bias")));
  return leave(at::linear(wide, parameters_.at(name + "down.weight")), group_) + parameters_.at(name + "down.bias");
}

}  // namespace trainer
