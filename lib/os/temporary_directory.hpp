// SPDX-License-Identifier: Apache-2.0
// A directory of one's own that goes with its object. It's locked as long as that lives, so that the next one can tell
// what a killed process left.
#pragma once

#include "os/fd.hpp"

#include <string>

namespace ckpt::os {

class TemporaryDirectory {
 public:
  /// A new directory in `parent` that no other user can look into. Those that dead processes of this user left there
  /// are removed.
  explicit TemporaryDirectory(const std::string& parent);
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory();

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  Fd lock_;
};

}  // namespace ckpt::os
