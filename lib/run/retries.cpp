// SPDX-License-Identifier: Apache-2.0
#include "run/retries.hpp"

#include <algorithm>
#include <cmath>

namespace ckpt::run {
namespace {

constexpr std::chrono::duration<double> longest_pause = std::chrono::seconds(60);

}  // namespace

Retries::Verdict Retries::count(std::optional<std::uint64_t> resumed, std::optional<std::uint64_t> newest) {
  counts_.furthest = std::max(counts_.furthest, resumed);
  if (newest > counts_.furthest) {
    counts_.furthest = newest;
    counts_.in_vain = 0;
    counts_.at_this_step = 0;
    counts_.poisoned_in_a_row = 0;
  } else {
    ++counts_.in_vain;
    ++counts_.at_this_step;
  }
  if (rules_.restarts && counts_.restarts >= *rules_.restarts) return Verdict::too_often;
  ++counts_.restarts;
  if (counts_.at_this_step < rules_.per_step) return Verdict::again;
  if (!resumed || counts_.poisoned_in_a_row >= rules_.poisoned) return Verdict::no_progress;
  ++counts_.poisoned_in_a_row;
  counts_.at_this_step = 0;
  return Verdict::poisoned;
}

std::chrono::duration<double> Retries::pause() const {
  // What fails once after a long run, as most do, is started again at once.
  if (counts_.in_vain < 2) return std::chrono::duration<double>(0);
  return std::min(longest_pause, rules_.backoff * std::exp2(std::min(counts_.in_vain - 2, 10U)));
}

}  // namespace ckpt::run
