// SPDX-License-Identifier: Apache-2.0
// A caller's observer, which needn't be thread-safe, for several threads.
#pragma once

#include <ckpt/sync.hpp>

#include <mutex>

namespace ckpt::ops {

class SharedSyncObserver final : public SyncObserver {
 public:
  explicit SharedSyncObserver(SyncObserver& observer) : observer_(observer) {}
  void progress(const Progress& progress) override {
    locked([&] { observer_.progress(progress); });
  }
  void warning(std::string_view message) override {
    locked([&] { observer_.warning(message); });
  }
  void note(std::string_view message) override {
    locked([&] { observer_.note(message); });
  }
  void item(const SyncItem& item) override {
    locked([&] { observer_.item(item); });
  }
  [[nodiscard]] bool stop_requested() const override { return observer_.stop_requested(); }

  template <class Call>
  void locked(Call call) {
    const std::lock_guard lock(mutex_);
    call();
  }

 private:
  SyncObserver& observer_;
  std::mutex mutex_;
};

}  // namespace ckpt::ops
