// SPDX-License-Identifier: Apache-2.0
// A directory tree built from the entries of a save: what a save of that directory would find is what was handed over.
#pragma once

#include "format/catalog.hpp"
#include "os/fd.hpp"

#include <set>
#include <string>
#include <vector>

namespace ckpt::doors {

/// Makes only what it's told to, below `root`: names that leave it, or that lead through anything but a directory made
/// here, are Errc::malformed. Entries come in the order of source::arrange(). Not thread-safe.
class TreeBuilder {
 public:
  /// `root` mustn't exist, its parent must.
  explicit TreeBuilder(std::string root);

  /// A directory, symlink or hard link.
  void add(const format::FileEntry& entry);
  /// A new file, open for writing.
  [[nodiscard]] os::Fd create_file(const format::FileEntry& entry);
  /// Its mode, owner and time, once its bytes are in it.
  void finish_file(const os::Fd& file, const format::FileEntry& entry) const;
  /// Modes, owners and times of directories, once all is in them.
  void finish();

  [[nodiscard]] std::string path_of(const std::string& path) const { return root_ + "/" + path; }

 private:
  void make_parents(const std::string& path);

  std::string root_;
  std::set<std::string> made_;  ///< directories, by their paths below the root
  std::vector<format::FileEntry> directories_;
};

}  // namespace ckpt::doors
