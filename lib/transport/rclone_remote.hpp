// SPDX-License-Identifier: Apache-2.0
// The objects below rclone:REMOTE:PATH, each operation one run of rclone. Names are relative, and made by this program.
#pragma once

#include "core/bytes.hpp"
#include "transport/rclone_process.hpp"

#include <ckpt/monitor.hpp>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt::transport {

/// Objects by their name.
using ObjectSizes = std::map<std::string, std::uint64_t>;

/// True for rclone:REMOTE:PATH.
[[nodiscard]] bool is_rclone(const std::string& text);

/// Not thread-safe. Throws busy, not_found, no_space, io as rclone fails, and unsupported where it isn't installed.
class RcloneRemote {
 public:
  /// Throws invalid_argument for what is not rclone:REMOTE:PATH.
  RcloneRemote(std::string address, std::chrono::milliseconds patience, const Monitor& monitor);

  /// For messages.
  [[nodiscard]] const std::string& address() const { return address_; }
  [[nodiscard]] std::string address(const std::string& name) const;

  /// Those that can be a store's. None if nothing is there.
  [[nodiscard]] ObjectSizes list() const;
  /// The same for a checkpoint's directory.
  [[nodiscard]] ObjectSizes list(const std::string& directory) const;
  /// Whether anything is there at all.
  [[nodiscard]] bool is_empty() const;

  /// Copies objects into a local directory, all in one run; those that are gone are left out. `bytes` is what they have
  /// in all: not much more is taken.
  void fetch(const std::vector<std::string>& names, const std::string& local_directory, std::uint64_t bytes) const;
  /// Sends an object's bytes from `offset` on.
  [[nodiscard]] std::unique_ptr<RcloneProcess> open(const std::string& name, std::uint64_t offset) const;
  /// Throws not_found if it ends before.
  [[nodiscard]] Bytes read(const std::string& name, std::uint64_t offset, std::uint64_t size) const;
  /// The MD5 sums that the remote itself tells, those that it can; `bytes` are how many it may have to read for them.
  [[nodiscard]] std::map<std::string, std::string> md5_sums(const std::string& directory,
                                                            const std::vector<std::string>& files,
                                                            std::uint64_t bytes) const;

  /// Takes an object's bytes; it's there once that has finished.
  [[nodiscard]] std::unique_ptr<RcloneProcess> create(const std::string& name, std::uint64_t size) const;
  /// Writes a small object and reads it back.
  void put(const std::string& name, std::string_view text) const;
  /// Copies within the remote, by its own means if it has any.
  void copy_files(const std::string& from, const std::string& to, const std::vector<std::string>& files,
                  std::uint64_t bytes) const;
  void remove_file(const std::string& name) const;
  void remove_files(const std::string& directory, const std::vector<std::string>& files) const;
  /// With all that is in it; where there are no directories an empty one isn't there.
  void remove_directory(const std::string& name) const;

 private:
  [[nodiscard]] std::string path_of(const std::string& name) const;
  [[nodiscard]] ObjectSizes list_path(const std::vector<std::string>& command, const std::string& path) const;

  std::string address_;
  std::string root_;  ///< as rclone takes it, with what a name can follow
  RcloneLimits limits_;
};

}  // namespace ckpt::transport
