// SPDX-License-Identifier: Apache-2.0
// Trying again what failed for a reason that passes: at longer and longer intervals, for a bounded time.
#pragma once

#include <ckpt/error.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

namespace ckpt::doors {

class Patience {
 public:
  using Clock = std::chrono::steady_clock;
  using Milliseconds = std::chrono::milliseconds;

  /// `stop` is asked while it sleeps; true is Errc::interrupted.
  Patience(Milliseconds limit, std::function<bool()> stop) : limit_(limit), stop_(std::move(stop)) { renew(); }

  /// Something went forward.
  void renew() {
    deadline_ = Clock::now() + limit_;
    pause_ = first_pause;
  }
  [[nodiscard]] bool is_over() const { return Clock::now() >= deadline_; }

  /// Sleeps before the next try.
  void sleep() {
    const auto until = std::min(Clock::now() + pause_, deadline_);
    while (Clock::now() < until) {
      if (stop_ && stop_()) throw Error(Errc::interrupted, "interrupted");
      std::this_thread::sleep_for(std::min<Clock::duration>(glance, until - Clock::now()));
    }
    pause_ = std::min(pause_ * 2, last_pause);
  }

 private:
  static constexpr Milliseconds first_pause{20};
  static constexpr Milliseconds last_pause{500};
  static constexpr Milliseconds glance{50};

  Milliseconds limit_;
  std::function<bool()> stop_;
  Clock::time_point deadline_;
  Milliseconds pause_ = first_pause;
};

}  // namespace ckpt::doors
