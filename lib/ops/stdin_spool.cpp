// SPDX-License-Identifier: Apache-2.0
#include "ops/stdin_spool.hpp"

#include "core/stop.hpp"
#include "os/aligned_buffer.hpp"
#include "os/small_file.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>
#include <cstdio>

namespace ckpt::ops {

os::Fd open_nameless(const std::string& directory) {
  const int fd = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
  if (fd >= 0) return os::Fd(fd);
  if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) {
    os::throw_errno(errno, "cannot make a temporary file in '" + directory + "'");
  }
  const std::string path = directory + "/.stdin." + os::unique_name();
  os::Fd file = os::open(path, O_RDWR | O_CREAT | O_EXCL, 0666);
  if (::unlink(path.c_str()) != 0) os::throw_errno(errno, "cannot unlink '" + path + "'");
  return file;
}

StdinSpool::StdinSpool(int fd, const std::string& store, Monitor& monitor)
    : file_(open_nameless(os::existing_ancestor(store))), path_("/proc/self/fd/" + std::to_string(file_.get())) {
  const std::string what = "standard input's spool";
  os::AlignedBuffer buffer(1U << 20U);
  std::uint64_t done = 0;
  while (true) {
    require_no_stop(monitor);
    const ssize_t n = ::read(fd, buffer.data(), buffer.capacity());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) os::throw_errno(errno, "cannot read standard input");
    if (n == 0) break;
    os::write_all(file_, {buffer.data(), static_cast<std::size_t>(n)}, what);
    done += static_cast<std::uint64_t>(n);
    monitor.progress({.stage = "spool", .done = done, .total = 0});
  }
  mode_ = os::stat_of(file_, what).st_mode & 0777U;
  // No one else can write to it, but the writing descriptor is ours: swap it for a reading one.
  os::Fd reading = os::open(path_, O_RDONLY);
  file_ = std::move(reading);
  path_ = "/proc/self/fd/" + std::to_string(file_.get());
  status_ = os::stat_of(file_, what);
}

}  // namespace ckpt::ops
