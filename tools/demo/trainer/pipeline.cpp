// SPDX-License-Identifier: Apache-2.0
#include "pipeline.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

namespace trainer {

at::Tensor forward_and_backward(const LanguageModel& model, const Options& options, const Place& place,
                                const Group& group, const at::Tensor& samples, double scale) {
  const std::int64_t own = place.stage * place.tp + place.tensor;  // in the group
  const std::int64_t count = place.pp == 1 ? 1 : std::min(samples.size(0), 2 * place.pp);
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> outputs;
  at::Tensor loss = at::zeros({});
  for (const at::Tensor& some : samples.chunk(count)) {
    at::Tensor input = some.narrow(1, 0, options.context);
    if (!place.is_first_stage()) {
      input = at::empty({some.size(0), options.context, options.width});
      group.receive(input, own - place.tp);
      input.requires_grad_();
    }
    at::Tensor output = model.forward(input);
    if (place.is_last_stage()) {
      output = at::cross_entropy_loss(output.flatten(0, 1), some.narrow(1, 1, options.context).flatten(), {},
                                      at::Reduction::Sum) *
               scale;
      loss += output.detach();
    } else {
      group.send(output.detach().contiguous(), own + place.tp);
    }
    inputs.push_back(input);
    outputs.push_back(output);
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    at::Tensor gradient;
    if (!place.is_last_stage()) {
      gradient = at::empty(outputs[i].sizes());
      group.receive(gradient, own + place.tp);
    }
    outputs[i].backward(gradient);
    if (!place.is_first_stage()) group.send(inputs[i].grad().contiguous(), own - place.tp);
  }
  return loss;
}

}  // namespace trainer
