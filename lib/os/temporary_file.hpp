// SPDX-License-Identifier: Apache-2.0
// Files in the making. Each is locked as long as its writer lives, so the next one can tell what a dead writer left.
#pragma once

#include "os/fd.hpp"

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

namespace ckpt::os {

/// Names that TemporaryFile gives begin so, unless another prefix is asked for.
inline constexpr std::string_view temporary_prefix = "tmp.";

/// A new, empty, locked file under a name that no one else uses: prefix, host, process, number, and after a dot the
/// suffix if there is one. The destructor removes the name; the lock goes with the last descriptor.
class TemporaryFile {
 public:
  TemporaryFile(const std::string& directory, unsigned mode, std::string_view prefix = temporary_prefix,
                std::string_view suffix = {});
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

/// Removes the temporary files in a directory whose writers are dead: at once where their lock is gone and they ran on
/// this host, after seven days by the file system's own clock otherwise.
void remove_dead_temporaries(const std::string& directory, std::string_view prefix = temporary_prefix);

/// The names of those whose lock is gone and that ran on this host. Changes nothing.
[[nodiscard]] std::set<std::string> unlocked_temporaries(const std::string& directory, std::string_view prefix);

/// What the file system that holds `directory`, which can be written to, takes for now, in seconds since the epoch.
[[nodiscard]] std::int64_t file_system_time(const std::string& directory);

/// After so many seconds what can't be known to be in use is taken for a dead writer's.
inline constexpr std::int64_t dead_after = 7 * 24 * 3600;

}  // namespace ckpt::os
