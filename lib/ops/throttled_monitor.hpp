// SPDX-License-Identifier: Apache-2.0
// A monitor that keeps an operation to a rate: it holds up each report of progress until the bytes may have been done.
#pragma once

#include <ckpt/monitor.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

namespace ckpt::ops {

class ThrottledMonitor final : public Monitor {
 public:
  /// 0: no limit. `inner` is borrowed.
  ThrottledMonitor(Monitor& inner, std::uint64_t bytes_per_second) : inner_(inner), rate_(bytes_per_second) {}

  void progress(const Progress& progress) override {
    inner_.progress(progress);
    // A stage that begins counts from zero again.
    const std::uint64_t fresh = progress.done >= last_ ? progress.done - last_ : progress.done;
    last_ = progress.done;
    if (rate_ == 0) return;
    due_ = std::max(due_, Clock::now()) + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
                                              static_cast<double>(fresh) / static_cast<double>(rate_)));
    while (Clock::now() < due_ && !inner_.stop_requested()) {
      std::this_thread::sleep_for(std::min<Clock::duration>(due_ - Clock::now(), std::chrono::milliseconds(100)));
    }
  }
  void warning(std::string_view message) override { inner_.warning(message); }
  void note(std::string_view message) override { inner_.note(message); }
  [[nodiscard]] bool stop_requested() const override { return inner_.stop_requested(); }

 private:
  using Clock = std::chrono::steady_clock;

  Monitor& inner_;
  std::uint64_t rate_;
  std::uint64_t last_ = 0;
  Clock::time_point due_ = Clock::now();
};

}  // namespace ckpt::ops
