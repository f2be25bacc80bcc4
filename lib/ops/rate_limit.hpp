// SPDX-License-Identifier: Apache-2.0
// Keeps one thread's work to a rate.
#pragma once

#include <ckpt/monitor.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

namespace ckpt::ops {

class RateLimit {
 public:
  /// 0: no limit.
  explicit RateLimit(std::uint64_t bytes_per_second) : rate_(bytes_per_second) {}

  /// Returns once `bytes` more may have been done, or as soon as a stop is wanted. Time that passed idle isn't made up.
  void hold(std::uint64_t bytes, const Monitor& monitor) {
    if (rate_ == 0) return;
    due_ = std::max(due_, Clock::now()) + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
                                              static_cast<double>(bytes) / static_cast<double>(rate_)));
    while (Clock::now() < due_ && !monitor.stop_requested())
      std::this_thread::sleep_for(std::min<Clock::duration>(due_ - Clock::now(), std::chrono::milliseconds(100)));
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::uint64_t rate_;
  Clock::time_point due_ = Clock::now();
};

}  // namespace ckpt::ops
