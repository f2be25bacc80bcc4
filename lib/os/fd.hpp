// SPDX-License-Identifier: Apache-2.0
// File descriptors that close themselves, and system calls whose every result is used.
//
// Each function throws ckpt::Error with the path and the system's own words; the code comes from errno:
// ENOENT not_found, EEXIST exists, ENOSPC and EDQUOT no_space, EAGAIN, EBUSY and ETXTBSY busy, others io.
#pragma once

#include <ckpt/error.hpp>

#include <sys/stat.h>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace ckpt::os {

[[noreturn]] void throw_errno(int error, const std::string& what);

/// Owns a descriptor. Movable, not copyable. The destructor closes without a word; close() reports.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) noexcept : fd_(fd) {}
  Fd(Fd&& other) noexcept;
  Fd& operator=(Fd&& other) noexcept;
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd();

  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] bool valid() const noexcept { return fd_ >= 0; }
  /// Gives the descriptor away without closing it.
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
  void close(const std::string& path);

 private:
  int fd_ = -1;
};

/// O_CLOEXEC is always added.
[[nodiscard]] Fd open(const std::string& path, int flags, unsigned mode = 0);
/// As open(), but a file that isn't there is nothing instead of an error.
[[nodiscard]] std::optional<Fd> open_if_exists(const std::string& path, int flags);
[[nodiscard]] Fd open_at(const Fd& directory, const std::string& name, int flags, unsigned mode = 0);

/// Reads until `into` is full or the file ends; returns how many bytes.
[[nodiscard]] std::size_t read_at(const Fd& fd, std::uint64_t offset, std::span<std::byte> into,
                                  const std::string& path);
void write_all(const Fd& fd, std::span<const std::byte> data, const std::string& path);
void write_at(const Fd& fd, std::uint64_t offset, std::span<const std::byte> data, const std::string& path);
void sync(const Fd& fd, const std::string& path);
/// Makes entries of a directory durable. File systems that can't sync a directory are left at that.
void sync_directory(const std::string& path);

/// From now on reads and writes say EAGAIN instead of waiting. Returns the flags as they were; `what` is for errors.
int set_nonblocking(const Fd& fd, const std::string& what);

[[nodiscard]] struct stat stat_of(const Fd& fd, const std::string& path);
/// Nothing if there's no such file.
[[nodiscard]] std::optional<struct stat> stat_path(const std::string& path, bool follow = true);
[[nodiscard]] bool exists(const std::string& path);

/// Bytes that an unprivileged writer can still put on the file system that holds `path`.
[[nodiscard]] std::uint64_t free_space(const std::string& path);

}  // namespace ckpt::os
