// SPDX-License-Identifier: Apache-2.0
// Files in the making. Each is locked by its writer as long as that lives, so the next writer can tell what a dead one
// left behind and clean it up.
#pragma once

#include "os/fd.hpp"
#include "store/store.hpp"

#include <string>

namespace ckpt::store {

/// A new, empty, locked file in Store::scratch(). The destructor removes the name; the lock goes with the descriptor.
class Temporary {
 public:
  Temporary(const Store& store, unsigned mode);
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary();

  [[nodiscard]] const std::string& path() const { return path_; }
  /// A second descriptor of the same open file: the lock holds until both are closed.
  [[nodiscard]] os::Fd share() const;

 private:
  std::string path_;
  os::Fd fd_;
};

/// Removes what dead writers left: at once where their lock is gone and they ran on this host, after seven days by the
/// file system's own clock otherwise; and sets that never got a shard.
void clean_leftovers(const Store& store);

}  // namespace ckpt::store
