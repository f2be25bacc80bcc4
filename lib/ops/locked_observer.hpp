// SPDX-License-Identifier: Apache-2.0
// A caller's observer, which needn't be thread-safe, for several threads: what every Monitor has. A derived class
// passes on what its kind of observer has beside it.
#pragma once

#include <ckpt/monitor.hpp>

#include <mutex>
#include <string_view>

namespace ckpt::ops {

/// `Observer` is a Monitor. The caller's is borrowed.
template <class Observer>
class LockedObserver : public Observer {
 public:
  explicit LockedObserver(Observer& observer) : observer_(observer) {}
  void progress(const Progress& progress) override {
    locked([&] { observer_.progress(progress); });
  }
  void warning(std::string_view message) override {
    locked([&] { observer_.warning(message); });
  }
  void note(std::string_view message) override {
    locked([&] { observer_.note(message); });
  }
  [[nodiscard]] bool stop_requested() const override { return observer_.stop_requested(); }

  template <class Call>
  void locked(Call call) {
    const std::lock_guard lock(mutex_);
    call();
  }

 protected:
  [[nodiscard]] Observer& observer() { return observer_; }

 private:
  Observer& observer_;
  std::mutex mutex_;
};

}  // namespace ckpt::ops
