// SPDX-License-Identifier: Apache-2.0
// Trains with what the EXAMPLES of ckpt-torch(3) say, in the working directory, and prints a sum of the parameters.
#include <torch/torch.h>

#include <cstdio>

void train(torch::nn::Module& model, torch::optim::Optimizer& optimizer);

int main() {
  torch::manual_seed(1);
  torch::nn::Linear model(4, 3);
  torch::optim::AdamW optimizer(model->parameters(), 0.01);
  for (const at::Tensor& parameter : model->parameters()) parameter.mutable_grad() = torch::ones_like(parameter);
  train(*model, optimizer);
  std::printf("%.9g\n", model->weight.sum().item<double>());
}
