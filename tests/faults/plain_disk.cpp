// SPDX-License-Identifier: Apache-2.0
// Preloaded into a command under test: a file system as some network mounts are, without direct I/O, without clones,
// and without a sync of directories. Each is refused as such a file system refuses it.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>

namespace {

template <typename F>
F* next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}
#define REAL(name) static auto* const real = next<decltype(name)>(#name)

int refuse(int error) {
  errno = error;
  return -1;
}

bool is_directory(int fd) {
  struct stat status {};
  return fstat(fd, &status) == 0 && S_ISDIR(status.st_mode);
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const auto mode = va_arg(list, unsigned);
  va_end(list);
  if ((flags & O_DIRECT) != 0 || (flags & O_TMPFILE) == O_TMPFILE)
    return refuse((flags & O_DIRECT) != 0 ? EINVAL : EOPNOTSUPP);
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

int open64(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const auto mode = va_arg(list, unsigned);
  va_end(list);
  return open(path, flags, mode);
}

int fcntl(int fd, int command, ...) {
  va_list list;
  va_start(list, command);
  void* const argument = va_arg(list, void*);
  va_end(list);
  if (command == F_SETFL && (reinterpret_cast<long>(argument) & O_DIRECT) != 0) return refuse(EINVAL);
  return static_cast<int>(syscall(SYS_fcntl, fd, command, argument));
}

int fcntl64(int fd, int command, ...) {
  va_list list;
  va_start(list, command);
  void* const argument = va_arg(list, void*);
  va_end(list);
  return fcntl(fd, command, argument);
}

int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list list;
  va_start(list, request);
  void* const argument = va_arg(list, void*);
  va_end(list);
  if (request == FICLONE) return refuse(EOPNOTSUPP);
  return static_cast<int>(syscall(SYS_ioctl, fd, request, argument));
}

int fsync(int fd) {
  REAL(fsync);
  return is_directory(fd) ? refuse(EINVAL) : real(fd);
}
}
