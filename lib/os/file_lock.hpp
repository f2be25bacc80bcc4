// SPDX-License-Identifier: Apache-2.0
// Kernel locks (flock): they die with their process, so a stale one can't exist.
#pragma once

#include "os/fd.hpp"

#include <chrono>
#include <optional>
#include <string>

namespace ckpt::os {

/// Takes an exclusive lock on an open file; false if another descriptor holds one.
[[nodiscard]] bool try_lock(const Fd& fd, const std::string& path);

/// Holds an exclusive lock on the file at `path`, which is made if it isn't there and stays.
class FileLock {
 public:
  /// Waits so long at most; then throws Errc::busy.
  FileLock(const std::string& path, std::chrono::milliseconds patience);

 private:
  Fd fd_;
};

}  // namespace ckpt::os
