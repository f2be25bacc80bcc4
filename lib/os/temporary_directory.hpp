// SPDX-License-Identifier: Apache-2.0
// A directory of one's own that goes with its object.
#pragma once

#include <string>

namespace ckpt::os {

class TemporaryDirectory {
 public:
  /// A new directory in `parent` that no other user can look into.
  explicit TemporaryDirectory(const std::string& parent);
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory();

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace ckpt::os
