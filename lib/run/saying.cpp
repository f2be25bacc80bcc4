// SPDX-License-Identifier: Apache-2.0
#include "run/saying.hpp"

namespace ckpt::run {
namespace {

bool is_waited_for(const NodeState& before, const NodeState& now) {
  return before.phase != now.phase || before.generation != now.generation || before.proposal != now.proposal ||
         before.is_in_time != now.is_in_time || before.is_answered != now.is_answered || before.wants != now.wants ||
         before.trouble != now.trouble || before.has_joined != now.has_joined;
}

}  // namespace

void Saying::set(const NodeState& state) {
  is_urgent_ |= !state_ || is_waited_for(*state_, state);
  state_ = state;
}

void Saying::set_said(Time now) {
  said_ = now;
  is_urgent_ = false;
}

}  // namespace ckpt::run
