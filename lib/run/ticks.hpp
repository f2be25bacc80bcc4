// SPDX-License-Identifier: Apache-2.0
// The one clock of this layer, which no one sets, and how users' seconds become its ticks.
#pragma once

#include <chrono>

namespace ckpt::run {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

[[nodiscard]] constexpr Clock::duration ticks(Seconds duration) {
  return std::chrono::duration_cast<Clock::duration>(duration);
}

}  // namespace ckpt::run
