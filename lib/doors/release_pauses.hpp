// SPDX-License-Identifier: Apache-2.0
// For how long a save is left alone that couldn't be stored for a reason that passes: longer each time. Thread-safe.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <string>

namespace ckpt::doors {

class ReleasePauses {
 public:
  using Milliseconds = std::chrono::milliseconds;

  explicit ReleasePauses(Milliseconds longest) : longest_(longest) {}

  [[nodiscard]] Milliseconds next(const std::string& save) {
    const std::lock_guard lock(mutex_);
    Milliseconds& pause = pauses_.try_emplace(save, first / 2).first->second;
    pause = std::min(pause * 2, longest_);
    return pause;
  }

  void forget(const std::string& save) {
    const std::lock_guard lock(mutex_);
    pauses_.erase(save);
  }

 private:
  static constexpr Milliseconds first{250};

  Milliseconds longest_;
  std::mutex mutex_;
  std::map<std::string, Milliseconds> pauses_;
};

}  // namespace ckpt::doors
