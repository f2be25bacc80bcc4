// SPDX-License-Identifier: Apache-2.0
#include "training_state.hpp"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <string>
#include <vector>

namespace trainer {
namespace {

void add(ckpt::torch::State& state, const Parameter& parameter) {
  const auto add_one = [&](const std::string& name, const at::Tensor& tensor) {
    if (parameter.is_part()) {
      state.add_sharded(name, tensor, parameter.spec.shape, parameter.offsets);
    } else {
      state.add(name, tensor);
    }
  };
  add_one("model." + parameter.spec.name, parameter.value.detach());
  add_one("optimizer.state." + parameter.spec.name + ".exp_avg", parameter.exp_avg);
  add_one("optimizer.state." + parameter.spec.name + ".exp_avg_sq", parameter.exp_avg_sq);
}

}  // namespace

ckpt::torch::State state_to_load(const Parameters& parameters, Progress& progress) {
  ckpt::torch::State state;
  state.add("step", progress.step).add("loss", progress.loss);
  for (const Parameter& parameter : parameters.all()) add(state, parameter);
  return state;
}

ckpt::torch::State state_to_save(const Parameters& parameters, Progress& progress, const Place& place) {
  ckpt::torch::State state;
  if (place.data == 0 && place.stage == 0 && place.tensor == 0)
    state.add("step", progress.step).add("loss", progress.loss);
  // Parts are held by one rank in each copy of the model, wholes by all that share the stage. The next goes to whom has
  // the least so far, which all of them reckon alike.
  std::vector<std::int64_t> parts(static_cast<std::size_t>(place.dp));
  std::vector<std::int64_t> wholes(static_cast<std::size_t>(place.dp * place.tp));
  for (const Parameter& parameter : parameters.all()) {
    std::vector<std::int64_t>& given = parameter.is_part() ? parts : wholes;
    const std::int64_t own = parameter.is_part() ? place.data : place.data * place.tp + place.tensor;
    const auto least = std::min_element(given.begin(), given.end());
    *least += parameter.value.numel();
    if (least - given.begin() == own) add(state, parameter);
  }
  return state;
}

std::uint64_t digest_of(const Options& options, const Parameters& parameters, const Place& place, const Group& model) {
  std::uint64_t digest = fnv1a_basis;
  auto own = parameters.all().begin();
  for (const ParameterSpec& spec : parameters_of_model(options)) {
    // Summed up as integers: zero and a part are that part, to the bit.
    const at::Tensor whole = at::zeros(spec.shape, at::TensorOptions().dtype(at::kInt));
    if (spec.stage == place.stage) {
      const Parameter& parameter = *own++;
      at::Tensor box = whole;
      if (parameter.is_part()) {
        box = whole.narrow(spec.split, parameter.offsets[static_cast<std::size_t>(spec.split)],
                           parameter.value.size(spec.split));
      }
      if (parameter.is_part() || place.tensor == 0) box.copy_(parameter.value.detach().view(at::kInt));
    }
    model.sum(whole);
    digest = fnv1a(digest, spec.name.data(), spec.name.size());
    digest = fnv1a(digest, whole.data_ptr(), whole.nbytes());
  }
  return digest;
}

}  // namespace trainer
