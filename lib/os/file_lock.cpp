// SPDX-License-Identifier: Apache-2.0
#include "os/file_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <cerrno>
#include <thread>

namespace ckpt::os {

bool try_lock(const Fd& fd, const std::string& path) {
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) return false;
    throw_errno(errno, "cannot lock '" + path + "'");
  }
  return true;
}

FileLock::FileLock(const std::string& path, std::chrono::milliseconds patience)
    : fd_(open(path, O_RDWR | O_CREAT, 0666)) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!os::try_lock(fd_, path)) {
    if (std::chrono::steady_clock::now() >= deadline) {
      throw Error(Errc::busy, "'" + path + "' is locked by another process");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace ckpt::os
