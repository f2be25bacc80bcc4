// SPDX-License-Identifier: Apache-2.0
// When a node tells its state: at once if others wait for what has changed, else a few times a second.
#pragma once

#include "run/job_state.hpp"

#include <chrono>
#include <optional>

namespace ckpt::run {

class Saying {
 public:
  using Time = std::chrono::steady_clock::time_point;

  void set(const NodeState& state);
  [[nodiscard]] bool is_due(Time now) const { return state_ && (is_urgent_ || !said_ || now - *said_ >= pause); }
  [[nodiscard]] bool is_urgent() const { return is_urgent_; }
  void set_said(Time now);
  [[nodiscard]] const std::optional<NodeState>& state() const { return state_; }

 private:
  static constexpr std::chrono::milliseconds pause{100};

  std::optional<NodeState> state_;
  std::optional<Time> said_;
  bool is_urgent_ = false;
};

}  // namespace ckpt::run
