// SPDX-License-Identifier: Apache-2.0
#include "model_parameters.hpp"

#include "training_text.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <utility>

namespace trainer {
namespace {

at::Tensor first_values(const ParameterSpec& spec, std::int64_t seed) {
  if (spec.deviation == 0) return at::zeros(spec.shape).fill_(spec.mean);
  const std::uint64_t own = fnv1a(fnv1a_basis ^ static_cast<std::uint64_t>(seed), spec.name.data(), spec.name.size());
  at::Generator generator = at::detail::createCPUGenerator(own);
  return at::randn(spec.shape, generator).mul_(spec.deviation).add_(spec.mean);
}

}  // namespace

std::vector<ParameterSpec> parameters_of_model(const Options& o) {
  const std::int64_t w = o.width;
  const double deviation = 0.02;
  // What is added to the residual stream 2 * layers times; as in GPT-2.
  const double small = deviation / std::sqrt(2.0 * static_cast<double>(o.layers));
  std::vector<ParameterSpec> specs = {
      {"embed.tokens.weight", {vocabulary, w}, -1, 0, 0, deviation},
      {"embed.positions.weight", {o.context, w}, -1, 0, 0, deviation},
  };
  for (std::int64_t layer = 0; layer < o.layers; ++layer) {
    const std::string block = "blocks." + std::to_string(layer) + ".";
    const std::int64_t stage = layer * o.pp / o.layers;
    const auto add = [&](const char* name, std::vector<std::int64_t> shape, int split, double mean, double spread) {
      specs.push_back({block + name, std::move(shape), split, stage, mean, spread});
    };
    add("norm1.weight", {w}, -1, 1, 0);
    add("norm1.bias", {w}, -1, 0, 0);
    // Query, key and value are a dimension of their own: so a rank's heads are a box of the whole.
    add("attention.qkv.weight", {3, w, w}, 1, 0, deviation);
    add("attention.qkv.bias", {3, w}, 1, 0, 0);
    add("attention.out.weight", {w, w}, 1, 0, small);
    add("attention.out.bias", {w}, -1, 0, 0);
    add("norm2.weight", {w}, -1, 1, 0);
    add("norm2.bias", {w}, -1, 0, 0);
    add("mlp.up.weight", {4 * w, w}, 0, 0, deviation);
    add("mlp.up.bias", {4 * w}, 0, 0, 0);
    add("mlp.down.weight", {w, 4 * w}, 1, 0, small);
    add("mlp.down.bias", {w}, -1, 0, 0);
  }
  specs.push_back({"norm.weight", {w}, -1, o.pp - 1, 1, 0});
  specs.push_back({"norm.bias", {w}, -1, o.pp - 1, 0, 0});
  specs.push_back({"head.weight", {vocabulary, w}, -1, o.pp - 1, 0, deviation});
  return specs;
}

Parameters::Parameters(const Options& options, const Place& place) {
  std::int64_t size = 1;
  for (ParameterSpec& spec : parameters_of_model(options)) {
    if (spec.stage != place.stage) continue;
    Parameter parameter;
    parameter.offsets.assign(spec.shape.size(), 0);
    parameter.value = first_values(spec, options.seed);
    if (spec.split >= 0) {
      const std::int64_t share = spec.shape[static_cast<std::size_t>(spec.split)] / place.tp;
      parameter.offsets[static_cast<std::size_t>(spec.split)] = place.tensor * share;
      parameter.value =
          parameter.value.narrow(spec.split, place.tensor * share, share).clone(at::MemoryFormat::Contiguous);
    }
    parameter.value.requires_grad_();
    parameter.exp_avg = at::zeros(parameter.value.sizes());
    parameter.exp_avg_sq = at::zeros(parameter.value.sizes());
    size += parameter.value.numel();
    numbers_.emplace(spec.name, all_.size());
    parameter.spec = std::move(spec);
    all_.push_back(std::move(parameter));
  }
  bucket_ = at::zeros({size});
  std::int64_t begin = 0;
  for (Parameter& parameter : all_) {
    parameter.value.mutable_grad() = bucket_.narrow(0, begin, parameter.value.numel()).view(parameter.value.sizes());
    begin += parameter.value.numel();
  }
}

std::uint64_t fnv1a(std::uint64_t digest, const void* bytes, std::size_t size) {
  const auto* const byte = static_cast<const unsigned char*>(bytes);
  for (std::size_t i = 0; i < size; ++i) digest = (digest ^ byte[i]) * 0x100000001b3U;
  return digest;
}

}  // namespace trainer
