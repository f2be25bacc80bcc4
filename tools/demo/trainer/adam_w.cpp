// SPDX-License-Identifier: Apache-2.0
#include "adam_w.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

namespace trainer {

void adam_w(Parameters& parameters, std::int64_t step, double lr, double scale) {
  const double beta1 = 0.9;
  const double beta2 = 0.95;
  const double epsilon = 1e-8;
  const double decay = 0.1;
  const std::int64_t warm_up = 20;
  const auto t = static_cast<double>(step);
  const double rate = lr * std::min(1.0, t / static_cast<double>(warm_up));
  const double bias1 = 1 - std::pow(beta1, t);
  const double bias2 = std::sqrt(1 - std::pow(beta2, t));
  const at::NoGradGuard no_grad;
  for (Parameter& p : parameters.all()) {
    const at::Tensor gradient = p.value.grad().mul_(scale);
    p.exp_avg.mul_(beta1).add_(gradient, 1 - beta1);
    p.exp_avg_sq.mul_(beta2).addcmul_(gradient, gradient, 1 - beta2);
    if (p.spec.deviation != 0) p.value.mul_(1 - rate * decay);  // neither norms nor biases
    p.value.addcdiv_(p.exp_avg, p.exp_avg_sq.sqrt().div_(bias2).add_(epsilon), -rate / bias1);
  }
}

}  // namespace trainer
