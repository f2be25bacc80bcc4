// SPDX-License-Identifier: Apache-2.0
// Thin wrappers: retry on EINTR, go on after short counts, turn errno into words.
#include "os/fd.hpp"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

namespace ckpt::os {
namespace {

Errc code_for(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR: return Errc::not_found;
    case EEXIST:
    case ENOTEMPTY: return Errc::exists;
    case ENOSPC:
    case EDQUOT: return Errc::no_space;
    case EAGAIN:
    case EBUSY:
    case ETXTBSY: return Errc::busy;
    default: return Errc::io;
  }
}

template <class Call>
auto retry(Call call) {
  decltype(call()) result;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

}  // namespace

void throw_errno(int error, const std::string& what) {
  throw Error(code_for(error), what + ": " + std::generic_category().message(error), error);
}

Fd::Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Fd& Fd::operator=(Fd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

void Fd::close(const std::string& path) {
  // Never again after EINTR: Linux has released the descriptor by then.
  if (::close(std::exchange(fd_, -1)) != 0 && errno != EINTR) throw_errno(errno, "cannot close '" + path + "'");
}

Fd open(const std::string& path, int flags, unsigned mode) {
  const int fd = retry([&] { return ::open(path.c_str(), flags | O_CLOEXEC, mode); });
  if (fd < 0) throw_errno(errno, "cannot open '" + path + "'");
  return Fd(fd);
}

std::optional<Fd> open_if_exists(const std::string& path, int flags) {
  const int fd = retry([&] { return ::open(path.c_str(), flags | O_CLOEXEC); });
  if (fd >= 0) return Fd(fd);
  if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
  throw_errno(errno, "cannot open '" + path + "'");
}

Fd open_at(const Fd& directory, const std::string& name, int flags, unsigned mode) {
  const int fd = retry([&] { return ::openat(directory.get(), name.c_str(), flags | O_CLOEXEC, mode); });
  if (fd < 0) throw_errno(errno, "cannot open '" + name + "'");
  return Fd(fd);
}

std::size_t read_at(const Fd& fd, std::uint64_t offset, std::span<std::byte> into, const std::string& path) {
  std::size_t done = 0;
  while (done < into.size()) {
    const ssize_t n = retry(
        [&] { return ::pread(fd.get(), into.data() + done, into.size() - done, static_cast<off_t>(offset + done)); });
    if (n < 0) throw_errno(errno, "cannot read '" + path + "' at byte " + std::to_string(offset + done));
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

void write_all(const Fd& fd, std::span<const std::byte> data, const std::string& path) {
  while (!data.empty()) {
    const ssize_t n = retry([&] { return ::write(fd.get(), data.data(), data.size()); });
    if (n < 0) throw_errno(errno, "cannot write '" + path + "'");
    data = data.subspan(static_cast<std::size_t>(n));
  }
}

void write_at(const Fd& fd, std::uint64_t offset, std::span<const std::byte> data, const std::string& path) {
  while (!data.empty()) {
    const ssize_t n = retry([&] { return ::pwrite(fd.get(), data.data(), data.size(), static_cast<off_t>(offset)); });
    if (n < 0) throw_errno(errno, "cannot write '" + path + "'");
    data = data.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
}

void sync(const Fd& fd, const std::string& path) {
  if (retry([&] { return ::fsync(fd.get()); }) != 0) throw_errno(errno, "cannot sync '" + path + "'");
}

void sync_directory(const std::string& path) {
  const Fd fd = open(path, O_RDONLY | O_DIRECTORY);
  if (retry([&] { return ::fsync(fd.get()); }) == 0) return;
  if (errno == EINVAL || errno == ENOTSUP || errno == EROFS) return;
  throw_errno(errno, "cannot sync directory '" + path + "'");
}

int set_nonblocking(const Fd& fd, const std::string& what) {
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) != 0)
    throw_errno(errno, "cannot use " + what + " without waiting");
  return flags;
}

struct stat stat_of(const Fd& fd, const std::string& path) {
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) throw_errno(errno, "cannot stat '" + path + "'");
  return st;
}

std::optional<struct stat> stat_path(const std::string& path, bool follow) {
  struct stat st {};
  if ((follow ? ::stat(path.c_str(), &st) : ::lstat(path.c_str(), &st)) == 0) return st;
  if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
  throw_errno(errno, "cannot stat '" + path + "'");
}

bool exists(const std::string& path) { return stat_path(path, false).has_value(); }

std::uint64_t free_space(const std::string& path) {
  struct statvfs vfs {};
  if (::statvfs(path.c_str(), &vfs) != 0) throw_errno(errno, "cannot stat the file system of '" + path + "'");
  // Some network file systems report no sizes at all; that isn't a full disk.
  if (vfs.f_blocks == 0) return std::numeric_limits<std::uint64_t>::max();
  return static_cast<std::uint64_t>(vfs.f_bavail) * vfs.f_frsize;
}

}  // namespace ckpt::os
