// SPDX-License-Identifier: Apache-2.0
// A monitor that keeps an operation to a rate: it holds up each report of progress until the bytes may have been done.
#pragma once

#include "ops/rate_limit.hpp"

#include <ckpt/monitor.hpp>

#include <cstdint>

namespace ckpt::ops {

class ThrottledMonitor final : public Monitor {
 public:
  /// 0: no limit. `inner` is borrowed.
  ThrottledMonitor(Monitor& inner, std::uint64_t bytes_per_second) : inner_(inner), limit_(bytes_per_second) {}

  void progress(const Progress& progress) override {
    inner_.progress(progress);
    // A stage that begins counts from zero again.
    const std::uint64_t fresh = progress.done >= last_ ? progress.done - last_ : progress.done;
    last_ = progress.done;
    limit_.hold(fresh, inner_);
  }
  void warning(std::string_view message) override { inner_.warning(message); }
  void note(std::string_view message) override { inner_.note(message); }
  [[nodiscard]] bool stop_requested() const override { return inner_.stop_requested(); }

 private:
  Monitor& inner_;
  RateLimit limit_;
  std::uint64_t last_ = 0;
};

}  // namespace ckpt::ops
