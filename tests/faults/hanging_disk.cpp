// SPDX-License-Identifier: Apache-2.0
// Preloaded: a file system that stops answering. While the file $CKPT_HANG_IF exists, whoever opens a path that holds
// $CKPT_HANG_PATH waits.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdlib>
#include <cstring>

namespace {

void wait_while_it_hangs(const char* path) {
  const char* const flag = getenv("CKPT_HANG_IF");
  const char* const part = getenv("CKPT_HANG_PATH");
  if (flag == nullptr || part == nullptr || strstr(path, part) == nullptr) return;
  while (access(flag, F_OK) == 0) usleep(10000);
}

mode_t mode_of(int flags, va_list rest) {
  return (flags & (O_CREAT | __O_TMPFILE)) != 0 ? static_cast<mode_t>(va_arg(rest, int)) : 0;
}

template <class F>
F* real(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

#define DEFINE_OPEN(NAME)                                              \
  int NAME(const char* path, int flags, ...) {                         \
    va_list rest;                                                      \
    va_start(rest, flags);                                             \
    const mode_t mode = mode_of(flags, rest);                          \
    va_end(rest);                                                      \
    wait_while_it_hangs(path);                                         \
    return real<int(const char*, int, ...)>(#NAME)(path, flags, mode); \
  }
#define DEFINE_OPENAT(NAME)                                                            \
  int NAME(int directory, const char* path, int flags, ...) {                          \
    va_list rest;                                                                      \
    va_start(rest, flags);                                                             \
    const mode_t mode = mode_of(flags, rest);                                          \
    va_end(rest);                                                                      \
    wait_while_it_hangs(path);                                                         \
    return real<int(int, const char*, int, ...)>(#NAME)(directory, path, flags, mode); \
  }

DEFINE_OPEN(open)
DEFINE_OPEN(open64)
DEFINE_OPENAT(openat)
DEFINE_OPENAT(openat64)

}  // extern "C"
