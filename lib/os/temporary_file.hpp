// SPDX-License-Identifier: Apache-2.0
// Files in the making. Each is locked as long as its writer lives, so the next one can tell what a dead writer left.
#pragma once

#include "os/fd.hpp"

#include <string>
#include <string_view>

namespace ckpt::os {

/// A new, empty, locked file under a name that no one else uses. The destructor removes the name; the lock goes with
/// the last descriptor.
class TemporaryFile {
 public:
  TemporaryFile(const std::string& directory, unsigned mode);
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const Fd& fd() const { return fd_; }
  /// A second descriptor of the same open file: the lock holds until both are closed.
  [[nodiscard]] Fd share() const;
  /// The name is gone already: the file was renamed.
  void forget_name() { path_.clear(); }

 private:
  std::string path_;
  Fd fd_;
};

/// Names that TemporaryFile gives begin so.
inline constexpr std::string_view temporary_prefix = "tmp.";

/// Removes the temporary files in a directory whose writers are dead: at once where their lock is gone and they ran on
/// this host, after seven days by the file system's own clock otherwise.
void remove_dead_temporaries(const std::string& directory);

}  // namespace ckpt::os
