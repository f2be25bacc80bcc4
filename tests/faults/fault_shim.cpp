// SPDX-License-Identifier: Apache-2.0
// Preloaded into a command under test: counts the system calls that change what's on disk below one directory, and at
// the k-th lets it fail, kills the process, or cuts the power. The cut is played on the real file system: what no
// fsync covers is undone, newest first, so that what's left is what a strict disk may hold.
//
// CKPT_FAULT_DIR    the directory; nothing outside it counts
// CKPT_FAULT_MODE   count; fail, short; kill; cut (unsynced bytes and names are lost); tear (names stay, unsynced
//                   bytes are zeros)
// CKPT_FAULT_AT     k, from 1; or "exit": cut or tear when the process exits by itself
// CKPT_FAULT_ERRNO  for fail: a number; CKPT_FAULT_STICKY=1: whatever needs space fails from the k-th on
// CKPT_FAULT_LOG    a file that gets one line a call: "k name path"
// CKPT_FAULT_GRAVE  for cut: a directory on the same file system, outside CKPT_FAULT_DIR, that keeps what was removed
#include "fault_disk.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

namespace {

using fault::Disk;

template <typename F>
F* next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}
#define REAL(name) static auto* const real = next<decltype(name)>(#name)

std::string env(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

enum class Mode { off, count, fail, cut_short, kill, cut, tear };

/// What a call needs to go wrong in its own way.
enum class Kind { write, open, create, sync, other };

class Shim {
 public:
  static Shim& get() {
    // Never destroyed: threads may still write while the process exits.
    static Shim* shim = new Shim;
    return *shim;
  }

  std::recursive_mutex mutex;
  Disk disk;

  /// True if the call must not be made; errno says why.
  bool strike(Kind kind, const char* name, const std::string& path) {
    ++count_;
    log(name, path);
    if (mode_ == Mode::fail && sticky_ && count_ > at_ && at_ != 0 &&
        (kind == Kind::write || kind == Kind::open || kind == Kind::create)) {
      errno = errno_;
      return true;
    }
    if (count_ != at_) return false;
    switch (mode_) {
      case Mode::fail:
        // No local file system interrupts these, so no caller need expect it.
        if (errno_ == EINTR && (kind == Kind::create || kind == Kind::other)) return false;
        errno = errno_;
        return true;
      case Mode::kill: ::kill(getpid(), SIGKILL); return false;
      case Mode::cut:
      case Mode::tear: cut(); _exit(137);
      default: return false;
    }
  }

  /// How much of a write of `size` bytes is let through at this count.
  [[nodiscard]] size_t allowance(int fd, size_t size) const {
    if (mode_ != Mode::cut_short || count_ != at_ || size < 2) return size;
    const size_t unit = (fcntl(fd, F_GETFL) & O_DIRECT) != 0 ? 4096 : 1;
    const size_t half = size / 2 / unit * unit;
    return half == 0 ? size : half;
  }

  /// The path of `fd` if it lies below the directory, else empty.
  [[nodiscard]] std::string inside(int fd) const {
    if (mode_ == Mode::off) return {};
    const std::string path = fault::path_of(fd);
    return path == dir_ || path.starts_with(dir_ + "/") ? path : std::string();
  }

  [[nodiscard]] bool undoes_names() const { return mode_ == Mode::cut; }
  [[nodiscard]] bool keeps_books() const { return mode_ == Mode::cut || mode_ == Mode::tear; }

  void at_exit() {
    if (!at_exit_ || !keeps_books()) return;
    at_exit_ = false;
    cut();
  }

 private:
  Shim() {
    const std::string mode = env("CKPT_FAULT_MODE");
    dir_ = env("CKPT_FAULT_DIR");
    if (dir_.empty() || mode.empty()) return;
    if (mode == "count") mode_ = Mode::count;
    if (mode == "fail") mode_ = Mode::fail;
    if (mode == "short") mode_ = Mode::cut_short;
    if (mode == "kill") mode_ = Mode::kill;
    if (mode == "cut") mode_ = Mode::cut;
    if (mode == "tear") mode_ = Mode::tear;
    char resolved[PATH_MAX];
    if (mode_ == Mode::off || realpath(dir_.c_str(), resolved) == nullptr) {
      fprintf(stderr, "fault_shim: bad mode or directory\n");
      _exit(98);
    }
    dir_ = resolved;
    const std::string at = env("CKPT_FAULT_AT");
    at_exit_ = at == "exit";
    at_ = at_exit_ ? 0 : strtoull(at.c_str(), nullptr, 10);
    errno_ = atoi(env("CKPT_FAULT_ERRNO").c_str());
    sticky_ = env("CKPT_FAULT_STICKY") == "1";
    if (const std::string file = env("CKPT_FAULT_LOG"); !file.empty()) {
      const int fd = static_cast<int>(
          syscall(SYS_openat, AT_FDCWD, file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
      log_fd_ = fault::raise_fd(fd);
    }
    if (keeps_books()) disk.open(env("CKPT_FAULT_GRAVE"), undoes_names());
  }

  void log(const char* name, const std::string& path) const {
    if (log_fd_ < 0) return;
    const std::string line = std::to_string(count_) + " " + name + " " + path + "\n";
    (void)!syscall(SYS_write, log_fd_, line.data(), line.size());
  }

  void cut() { disk.cut(mode_ == Mode::tear); }

  Mode mode_ = Mode::off;
  std::string dir_;
  unsigned long long at_ = 0;
  unsigned long long count_ = 0;
  bool at_exit_ = false;
  bool sticky_ = false;
  int errno_ = EIO;
  int log_fd_ = -1;
};

struct AtExit {
  ~AtExit() {
    Shim& shim = Shim::get();
    const std::lock_guard lock(shim.mutex);
    shim.at_exit();
  }
} at_exit_hook;

/// A name in a directory, as a call gives it. fd is -1 if the directory isn't there.
struct Place {
  int dir = -1;
  std::string name;
  std::string path;  ///< empty: not below the watched directory

  Place(int at, const char* given) {
    std::string text(given == nullptr ? "" : given);
    while (text.size() > 1 && text.back() == '/') text.pop_back();
    const size_t slash = text.rfind('/');
    const std::string parent = slash == std::string::npos ? "." : slash == 0 ? "/" : text.substr(0, slash);
    name = slash == std::string::npos ? text : text.substr(slash + 1);
    const int flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
    dir = static_cast<int>(syscall(SYS_openat, at, parent.c_str(), flags, 0));
    if (dir < 0) return;
    const std::string base = Shim::get().inside(dir);
    if (!base.empty()) path = base + "/" + name;
  }
  ~Place() {
    const int saved = errno;
    if (dir >= 0) syscall(SYS_close, dir);
    errno = saved;
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
};

/// Runs `call` as one counted change of a name. before() and after() keep the books for a power cut.
template <typename Call, typename Before, typename After>
int change(Kind kind, const char* name, const Place& place, Call call, Before before, After after) {
  Shim& shim = Shim::get();
  if (place.path.empty()) return call();
  const std::lock_guard lock(shim.mutex);
  if (shim.strike(kind, name, place.path)) return -1;
  if (shim.keeps_books()) before();
  const int result = call();
  const int saved = errno;
  if (result >= 0 && shim.keeps_books()) after(result);
  errno = saved;
  return result;
}

template <typename Call>
int do_open(const char* name, int at, const char* path, int flags, Call call) {
  Shim& shim = Shim::get();
  const int access = flags & O_ACCMODE;
  const bool unnamed = (flags & O_TMPFILE) == O_TMPFILE;
  const bool creates = (flags & O_CREAT) != 0 || unnamed;
  if (!creates && (access == O_RDONLY || (flags & O_PATH) == O_PATH)) return call();
  const Place place(at, path);
  if (place.path.empty()) return call();
  const std::lock_guard lock(shim.mutex);
  const bool counts = creates || (flags & O_TRUNC) != 0;
  if (counts && shim.strike(Kind::open, name, place.path)) return -1;
  const bool was_there = !unnamed && faccessat(place.dir, place.name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
  if (was_there && (flags & O_TRUNC) != 0 && shim.keeps_books()) shim.disk.before_truncate(place.dir, place.name, 0);
  const int fd = call();
  const int saved = errno;
  if (fd >= 0 && shim.keeps_books()) {
    if (access != O_RDONLY) shim.disk.opened(fd, !was_there);
    if (!was_there && !unnamed) shim.disk.created(place.dir, place.name);
  }
  errno = saved;
  return fd;
}

/// Runs `call(allowed)` as one counted write of `size` bytes at `offset` (-1: the file's own position).
template <typename Call>
ssize_t do_write(const char* name, int fd, size_t size, off64_t offset, Call call) {
  Shim& shim = Shim::get();
  const std::string path = shim.inside(fd);
  if (path.empty()) return call(size);
  const std::lock_guard lock(shim.mutex);
  if (shim.strike(Kind::write, name, path)) return -1;
  const size_t allowed = shim.allowance(fd, size);
  if (shim.keeps_books()) shim.disk.before_write(fd, offset < 0 ? lseek64(fd, 0, SEEK_CUR) : offset, allowed);
  return call(allowed);
}

template <typename Call>
int do_sync(const char* name, int fd, Call call) {
  Shim& shim = Shim::get();
  const std::string path = shim.inside(fd);
  if (path.empty()) return call();
  const std::lock_guard lock(shim.mutex);
  if (shim.strike(Kind::sync, name, path)) return -1;
  const int result = call();
  if (result == 0 && shim.keeps_books()) shim.disk.synced(fd);
  return result;
}

size_t bytes_of(const iovec* parts, int count) {
  size_t total = 0;
  for (int i = 0; i < count; ++i) total += parts[i].iov_len;
  return total;
}

std::vector<iovec> first_bytes(const iovec* parts, int count, size_t allowed) {
  std::vector<iovec> out;
  for (int i = 0; i < count && allowed > 0; ++i) {
    iovec part = parts[i];
    part.iov_len = std::min(part.iov_len, allowed);
    allowed -= part.iov_len;
    out.push_back(part);
  }
  return out;
}

int do_rename(const char* name, int from_at, const char* from, int to_at, const char* to, unsigned flags, auto call) {
  const Place source(from_at, from);
  const Place target(to_at, to);
  Shim& shim = Shim::get();
  Disk::Moved moved;
  return change(
      Kind::other, name, target.path.empty() ? source : target, call,
      [&] { moved = shim.disk.before_rename(source.dir, source.name, target.dir, target.name); },
      [&](int) { shim.disk.renamed(source.dir, source.name, target.dir, target.name, flags, moved); });
}

int do_remove(const char* name, int at, const char* path, auto call) {
  const Place place(at, path);
  Shim& shim = Shim::get();
  Disk::Removed removed;
  return change(
      Kind::other, name, place, call, [&] { removed = shim.disk.before_remove(place.dir, place.name); },
      [&](int) { shim.disk.removed(place.dir, place.name, removed); });
}

int do_create(const char* name, int at, const char* path, auto call) {
  const Place place(at, path);
  return change(
      Kind::create, name, place, call, [] {}, [&](int) { Shim::get().disk.created(place.dir, place.name); });
}

int do_truncate(const char* name, int fd, off64_t size, auto call) {
  Shim& shim = Shim::get();
  const std::string path = shim.inside(fd);
  if (path.empty()) return call();
  const std::lock_guard lock(shim.mutex);
  if (shim.strike(Kind::write, name, path)) return -1;
  if (shim.keeps_books()) shim.disk.before_truncate(fd, size);
  return call();
}

int do_allocate(const char* name, int fd, auto call) {
  Shim& shim = Shim::get();
  const std::string path = shim.inside(fd);
  if (path.empty()) return call();
  const std::lock_guard lock(shim.mutex);
  if (shim.strike(Kind::write, name, path)) return -1;
  return call();
}

}  // namespace

#define MODE_ARGUMENT                                   \
  mode_t mode = 0;                                      \
  if ((flags & (O_CREAT | O_TMPFILE)) != 0) {           \
    va_list list;                                       \
    va_start(list, flags);                              \
    mode = static_cast<mode_t>(va_arg(list, unsigned)); \
    va_end(list);                                       \
  }

extern "C" {

int open(const char* path, int flags, ...) {
  MODE_ARGUMENT
  REAL(open);
  return do_open("open", AT_FDCWD, path, flags, [&] { return real(path, flags, mode); });
}
int open64(const char* path, int flags, ...) {
  MODE_ARGUMENT
  REAL(open64);
  return do_open("open", AT_FDCWD, path, flags, [&] { return real(path, flags, mode); });
}
int openat(int at, const char* path, int flags, ...) {
  MODE_ARGUMENT
  REAL(openat);
  return do_open("openat", at, path, flags, [&] { return real(at, path, flags, mode); });
}
int openat64(int at, const char* path, int flags, ...) {
  MODE_ARGUMENT
  REAL(openat64);
  return do_open("openat", at, path, flags, [&] { return real(at, path, flags, mode); });
}
int creat(const char* path, mode_t mode) { return open(path, O_WRONLY | O_CREAT | O_TRUNC, mode); }
int creat64(const char* path, mode_t mode) { return open64(path, O_WRONLY | O_CREAT | O_TRUNC, mode); }

ssize_t write(int fd, const void* data, size_t size) {
  REAL(write);
  return do_write("write", fd, size, -1, [&](size_t n) { return real(fd, data, n); });
}
ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  REAL(pwrite);
  return do_write("pwrite", fd, size, offset, [&](size_t n) { return real(fd, data, n, offset); });
}
ssize_t pwrite64(int fd, const void* data, size_t size, off64_t offset) {
  REAL(pwrite64);
  return do_write("pwrite", fd, size, offset, [&](size_t n) { return real(fd, data, n, offset); });
}
ssize_t writev(int fd, const iovec* parts, int count) {
  REAL(writev);
  return do_write("writev", fd, bytes_of(parts, count), -1, [&](size_t n) {
    const auto some = first_bytes(parts, count, n);
    return real(fd, some.data(), static_cast<int>(some.size()));
  });
}
ssize_t pwritev(int fd, const iovec* parts, int count, off_t offset) {
  REAL(pwritev);
  return do_write("pwritev", fd, bytes_of(parts, count), offset, [&](size_t n) {
    const auto some = first_bytes(parts, count, n);
    return real(fd, some.data(), static_cast<int>(some.size()), offset);
  });
}
ssize_t pwritev64(int fd, const iovec* parts, int count, off64_t offset) { return pwritev(fd, parts, count, offset); }
ssize_t pwritev2(int fd, const iovec* parts, int count, off_t offset, int flags) {
  REAL(pwritev2);
  return do_write("pwritev2", fd, bytes_of(parts, count), offset, [&](size_t n) {
    const auto some = first_bytes(parts, count, n);
    return real(fd, some.data(), static_cast<int>(some.size()), offset, flags);
  });
}
ssize_t pwritev64v2(int fd, const iovec* parts, int count, off64_t offset, int flags) {
  return pwritev2(fd, parts, count, offset, flags);
}
ssize_t copy_file_range(int in, off64_t* in_offset, int out, off64_t* out_offset, size_t size, unsigned flags) {
  REAL(copy_file_range);
  return do_write("copy_file_range", out, size, out_offset == nullptr ? -1 : *out_offset,
                  [&](size_t n) { return real(in, in_offset, out, out_offset, n, flags); });
}
ssize_t sendfile(int out, int in, off_t* offset, size_t size) noexcept {
  static auto* const real = next<ssize_t(int, int, off_t*, size_t)>("sendfile");
  return do_write("sendfile", out, size, -1, [&](size_t n) { return real(out, in, offset, n); });
}
ssize_t sendfile64(int out, int in, off64_t* offset, size_t size) noexcept { return sendfile(out, in, offset, size); }

int fsync(int fd) {
  REAL(fsync);
  return do_sync("fsync", fd, [&] { return real(fd); });
}
int fdatasync(int fd) {
  REAL(fdatasync);
  return do_sync("fdatasync", fd, [&] { return real(fd); });
}
int syncfs(int fd) noexcept {
  REAL(syncfs);
  const int result = do_sync("syncfs", fd, [&] { return real(fd); });
  if (result == 0) {
    const std::lock_guard lock(Shim::get().mutex);
    Shim::get().disk.all_synced();
  }
  return result;
}

int ftruncate(int fd, off_t size) noexcept {
  REAL(ftruncate);
  return do_truncate("ftruncate", fd, size, [&] { return real(fd, size); });
}
int ftruncate64(int fd, off64_t size) noexcept {
  REAL(ftruncate64);
  return do_truncate("ftruncate", fd, size, [&] { return real(fd, size); });
}
int fallocate(int fd, int mode, off_t offset, off_t size) {
  REAL(fallocate);
  return do_allocate("fallocate", fd, [&] { return real(fd, mode, offset, size); });
}
int fallocate64(int fd, int mode, off64_t offset, off64_t size) {
  REAL(fallocate64);
  return do_allocate("fallocate", fd, [&] { return real(fd, mode, offset, size); });
}
int posix_fallocate(int fd, off_t offset, off_t size) {
  REAL(posix_fallocate);
  const int result = do_allocate("posix_fallocate", fd, [&] { return real(fd, offset, size); });
  return result < 0 ? errno : result;
}
int posix_fallocate64(int fd, off64_t offset, off64_t size) { return posix_fallocate(fd, offset, size); }

int link(const char* from, const char* to) noexcept {
  REAL(link);
  return do_create("link", AT_FDCWD, to, [&] { return real(from, to); });
}
int linkat(int from_at, const char* from, int to_at, const char* to, int flags) noexcept {
  REAL(linkat);
  return do_create("linkat", to_at, to, [&] { return real(from_at, from, to_at, to, flags); });
}
int symlink(const char* target, const char* path) noexcept {
  REAL(symlink);
  return do_create("symlink", AT_FDCWD, path, [&] { return real(target, path); });
}
int symlinkat(const char* target, int at, const char* path) noexcept {
  REAL(symlinkat);
  return do_create("symlinkat", at, path, [&] { return real(target, at, path); });
}
int mkdir(const char* path, mode_t mode) noexcept {
  REAL(mkdir);
  return do_create("mkdir", AT_FDCWD, path, [&] { return real(path, mode); });
}
int mkdirat(int at, const char* path, mode_t mode) noexcept {
  REAL(mkdirat);
  return do_create("mkdirat", at, path, [&] { return real(at, path, mode); });
}

int rename(const char* from, const char* to) noexcept {
  REAL(rename);
  return do_rename("rename", AT_FDCWD, from, AT_FDCWD, to, 0, [&] { return real(from, to); });
}
int renameat(int from_at, const char* from, int to_at, const char* to) noexcept {
  REAL(renameat);
  return do_rename("renameat", from_at, from, to_at, to, 0, [&] { return real(from_at, from, to_at, to); });
}
int renameat2(int from_at, const char* from, int to_at, const char* to, unsigned flags) noexcept {
  REAL(renameat2);
  return do_rename("renameat2", from_at, from, to_at, to, flags, [&] { return real(from_at, from, to_at, to, flags); });
}

int unlink(const char* path) noexcept {
  REAL(unlink);
  return do_remove("unlink", AT_FDCWD, path, [&] { return real(path); });
}
int unlinkat(int at, const char* path, int flags) noexcept {
  REAL(unlinkat);
  return do_remove("unlinkat", at, path, [&] { return real(at, path, flags); });
}
int rmdir(const char* path) noexcept {
  REAL(rmdir);
  return do_remove("rmdir", AT_FDCWD, path, [&] { return real(path); });
}
int remove(const char* path) noexcept {
  REAL(remove);
  return do_remove("remove", AT_FDCWD, path, [&] { return real(path); });
}

void _exit(int status) {
  Shim& shim = Shim::get();
  {
    const std::lock_guard lock(shim.mutex);
    shim.at_exit();
  }
  syscall(SYS_exit_group, status);
  __builtin_unreachable();
}
void _Exit(int status) noexcept { _exit(status); }

}  // extern "C"
