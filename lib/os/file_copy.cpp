// SPDX-License-Identifier: Apache-2.0
#include "os/file_copy.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <vector>

namespace ckpt::os {
namespace {

constexpr std::size_t piece = 8U << 20U;

/// What these say where a file system, or a pair of them, can't do it.
bool is_not_possible(int error) {
  return error == EOPNOTSUPP || error == ENOTTY || error == EXDEV || error == EINVAL || error == ENOSYS ||
         error == EBADF || error == EPERM;
}

[[noreturn]] void throw_shorter(const std::string& path) {
  throw Error(Errc::busy, "'" + path + "' became shorter while it was copied");
}

/// By way of this process; goes on from `done`.
void copy_by_hand(const Fd& from, const std::string& from_path, const Fd& to, const std::string& to_path,
                  std::uint64_t size, std::uint64_t done, const std::function<void(std::uint64_t)>& step) {
  std::vector<std::byte> buffer(static_cast<std::size_t>(std::min<std::uint64_t>(piece, size - done)));
  while (done < size) {
    const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), size - done));
    const std::size_t got = read_at(from, done, {buffer.data(), wanted}, from_path);
    if (got < wanted) throw_shorter(from_path);
    write_at(to, done, {buffer.data(), got}, to_path);
    done += got;
    step(done);
  }
}

}  // namespace

Copied copy_content(const Fd& from, const std::string& from_path, const Fd& to, const std::string& to_path,
                    std::uint64_t size, const std::function<void(std::uint64_t done)>& step) {
  if (size == 0) return Copied::copied;
  if (::ioctl(to.get(), FICLONE, from.get()) == 0) {
    if (static_cast<std::uint64_t>(stat_of(to, to_path).st_size) != size) throw_shorter(from_path);
    step(size);
    return Copied::cloned;
  }
  if (!is_not_possible(errno)) throw_errno(errno, "cannot copy '" + from_path + "' to '" + to_path + "'");
  for (std::uint64_t done = 0; done < size; step(done)) {
    auto in = static_cast<off64_t>(done);
    auto out = static_cast<off64_t>(done);
    const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(piece, size - done));
    const ssize_t n = ::copy_file_range(from.get(), &in, to.get(), &out, wanted, 0);
    if (n > 0) {
      done += static_cast<std::uint64_t>(n);
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && !is_not_possible(errno)) throw_errno(errno, "cannot copy '" + from_path + "' to '" + to_path + "'");
    // Some kernels say 0 where a file system can't: the end of the file is told apart by reading.
    copy_by_hand(from, from_path, to, to_path, size, done, step);
    return Copied::copied;
  }
  return Copied::copied;
}

bool rename_to_free_name(const std::string& from, const std::string& to) {
  const auto fail = [&] {
    if (errno == EXDEV)
      throw Error(Errc::unsupported, "'" + from + "' and '" + to + "' are on two file systems", EXDEV);
    throw_errno(errno, "cannot rename '" + from + "' to '" + to + "'");
  };
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno == EEXIST || errno == ENOENT || errno == ENOTEMPTY) return false;
  if (errno != EINVAL && errno != ENOSYS) fail();
  // A file system that knows no such renaming: a look and a plain one.
  if (stat_path(to, false)) return false;
  if (::rename(from.c_str(), to.c_str()) == 0) return true;
  if (errno == ENOENT || errno == EEXIST || errno == ENOTEMPTY) return false;
  fail();
  return false;
}

}  // namespace ckpt::os
