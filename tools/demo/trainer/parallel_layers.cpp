// SPDX-License-Identifier: Apache-2.0
#include "parallel_layers.hpp"

#include <torch/csrc/autograd/custom_function.h>

namespace trainer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

/// The group outlives the pass: it's the model's.
struct Enter : torch::autograd::Function<Enter> {
  static Variable forward(AutogradContext* context, const Variable& x, const Group* group) {
    context->saved_data["group"] = reinterpret_cast<std::int64_t>(group);
    return x.view_as(x);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto* const group = reinterpret_cast<const Group*>(context->saved_data["group"].toInt());
    at::Tensor sum = gradients[0].contiguous().clone();
    group->sum(sum);
    return {sum, Variable()};
  }
};

struct Leave : torch::autograd::Function<Leave> {
  static Variable forward(AutogradContext*, const Variable& x, const Group* group) {
    at::Tensor sum = x.contiguous().clone();
    group->sum(sum);
    return sum;
  }
  static variable_list backward(AutogradContext*, const variable_list& gradients) { return {gradients[0], Variable()}; }
};

}  // namespace

at::Tensor enter(const at::Tensor& x, const Group& group) { return group.is_one() ? x : Enter::apply(x, &group); }
at::Tensor leave(const at::Tensor& x, const Group& group) { return group.is_one() ? x : Leave::apply(x, &group); }

}  // namespace trainer
