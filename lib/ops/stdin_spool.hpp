// SPDX-License-Identifier: Apache-2.0
// Standard input kept in a file without a name, on the store's own disk: a zip's directory comes last, so nothing can
// be said of a stream before its end.
#pragma once

#include "os/fd.hpp"

#include <ckpt/monitor.hpp>

#include <string>

namespace ckpt::ops {

/// A file that goes with its last descriptor, whatever happens to the process.
[[nodiscard]] os::Fd open_nameless(const std::string& directory);

class StdinSpool {
 public:
  /// Reads `fd` to its end. Throws no_space, io, interrupted.
  StdinSpool(int fd, const std::string& store, Monitor& monitor);

  /// Opens the file again, while this object lives.
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const struct stat& status() const { return status_; }
  /// What a new file's mode would be: 0666 less the umask.
  [[nodiscard]] std::uint32_t mode() const { return mode_; }

 private:
  os::Fd file_;
  std::string path_;
  struct stat status_ {};
  std::uint32_t mode_ = 0;
};

}  // namespace ckpt::ops
