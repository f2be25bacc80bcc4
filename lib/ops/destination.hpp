// SPDX-License-Identifier: Apache-2.0
// A directory tree that is written without ever leaving it: every path is walked from an open directory, component by
// component, and no symlink is followed.
#pragma once

#include "os/fd.hpp"

#include <sys/stat.h>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace ckpt::ops {

/// Throws Errc::invalid_argument if what is made at `path` would lie in the store or be it.
void require_outside(const std::string& store, const std::string& path);

/// New files go to temporary names beside their final ones; commit() renames them all. Until then the destructor takes
/// everything back. A root that doesn't exist is made as a whole under a temporary name.
///
/// create_file() is thread-safe, the rest is not.
class Destination {
 public:
  /// `root` is a directory, or doesn't exist and its parent is one.
  explicit Destination(const std::string& root);
  Destination(const Destination&) = delete;
  Destination& operator=(const Destination&) = delete;
  ~Destination();

  /// What is at a path now, symlinks not followed. Errc::exists if a component above it isn't a directory.
  [[nodiscard]] std::optional<struct stat> status(const std::string& path) const;
  [[nodiscard]] os::Fd open_for_reading(const std::string& path) const;
  [[nodiscard]] std::string read_link(const std::string& path) const;

  /// A new file that will be at `path` after commit().
  [[nodiscard]] os::Fd create_file(const std::string& path);
  void make_directory(const std::string& path);
  void add_symlink(const std::string& path, const std::string& target);
  /// `target` is a path that is there after the commit.
  void add_hardlink(const std::string& path, const std::string& target);

  void commit();
  /// After commit(): mode and mtime of what is at a path.
  void set_attributes(const std::string& path, std::uint32_t mode, std::int64_t mtime_ns) const;

 private:
  struct Link {
    std::string path;
    std::string target;
  };
  struct Renaming {
    std::string from;
    std::string to;
  };

  [[nodiscard]] os::Fd open_parent(const std::string& path, bool make);
  [[nodiscard]] std::optional<os::Fd> find_parent(const std::string& path) const;
  void rename_into_place(const Renaming& renaming);
  [[nodiscard]] std::string temporary_for(const std::string& path) const;

  std::string root_path_;
  std::string staging_path_;  ///< empty: the root was there already
  os::Fd root_;
  std::mutex mutex_;
  std::vector<Renaming> files_;
  std::vector<Link> symlinks_;
  std::vector<Link> hardlinks_;
  std::vector<std::string> made_;  ///< directories, in the order they were made
  bool committed_ = false;
};

}  // namespace ckpt::ops
