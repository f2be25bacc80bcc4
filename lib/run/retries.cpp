// SPDX-License-Identifier: Apache-2.0
#include "run/retries.hpp"

#include <algorithm>
#include <cmath>

namespace ckpt::run {
namespace {

constexpr std::chrono::duration<double> longest_pause = std::chrono::seconds(60);

}  // namespace

Retries::Verdict Retries::count(std::optional<std::uint64_t> resumed, std::optional<std::uint64_t> newest) {
  furthest_ = std::max(furthest_, resumed);
  if (newest > furthest_) {
    furthest_ = newest;
    in_vain_ = 0;
    at_this_step_ = 0;
    poisoned_in_a_row_ = 0;
  } else {
    ++in_vain_;
    ++at_this_step_;
  }
  if (rules_.restarts && restarts_ >= *rules_.restarts) return Verdict::too_often;
  ++restarts_;
  if (at_this_step_ < rules_.per_step) return Verdict::again;
  if (!resumed || poisoned_in_a_row_ >= rules_.poisoned) return Verdict::no_progress;
  ++poisoned_in_a_row_;
  at_this_step_ = 0;
  return Verdict::poisoned;
}

std::chrono::duration<double> Retries::pause() const {
  // What fails once after a long run, as most do, is started again at once.
  if (in_vain_ < 2) return std::chrono::duration<double>(0);
  return std::min(longest_pause, rules_.backoff * std::exp2(std::min(in_vain_ - 2, 10U)));
}

}  // namespace ckpt::run
