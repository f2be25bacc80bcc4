// SPDX-License-Identifier: Apache-2.0
// Waits for changes of directories: by inotify where the kernel tells, else simply for the time that's given.
#pragma once

#include "os/fd.hpp"

#include <chrono>
#include <string>
#include <vector>

namespace ckpt::os {

class DirectoryWatch {
 public:
  /// Directories that aren't there are left out. Network file systems don't tell what other hosts do: a caller looks
  /// for itself after each wait.
  explicit DirectoryWatch(const std::vector<std::string>& directories);

  /// Comes back after a change, or when the time is over. True after a change.
  bool wait(std::chrono::milliseconds patience);

 private:
  Fd inotify_;  ///< invalid: the kernel has none to give
};

/// Whether a process has ended.
class ProcessWatch {
 public:
  /// Errc::not_found if there's no such process.
  explicit ProcessWatch(int pid);
  [[nodiscard]] bool has_ended() const;

 private:
  int pid_;
  Fd handle_;  ///< invalid on kernels without: then a number that's taken again is taken for the process
};

}  // namespace ckpt::os
