// SPDX-License-Identifier: Apache-2.0
// A directory for a state that was fetched. It goes with its object, or if that died with its process, with the next
// server that looks.
#pragma once

#include "os/temporary_file.hpp"

#include <string>

namespace ckpt::doors {

class FetchedTree {
 public:
  /// In `scratch`, which exists. The directory itself isn't made.
  explicit FetchedTree(const std::string& scratch);
  FetchedTree(const FetchedTree&) = delete;
  FetchedTree& operator=(const FetchedTree&) = delete;
  ~FetchedTree();

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  os::TemporaryFile lock_;  ///< there before the directory is, and after it
  std::string path_;
};

/// Those whose process is dead.
void remove_dead_fetched_trees(const std::string& scratch);

}  // namespace ckpt::doors
