// SPDX-License-Identifier: Apache-2.0
// Preloaded into a command under test: a network file system whose client remembers listings. What is newer than the
// file $CKPT_LAG_SINCE (without it: anything) isn't listed, though it can be opened by name, until this process asks
// the directory's attributes anew or changes the directory itself; after that its listing is remembered as it was then.
// With $CKPT_LAG=deaf asking doesn't help.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace {

template <typename F>
F* next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}
#define REAL(name) static auto* const real = next<decltype(name)>(#name)

using Names = std::set<std::string>;

/// Whether a listing from before still shows an entry.
bool is_settled(int directory, const char* name) {
  const char* const mark = getenv("CKPT_LAG_SINCE");
  struct stat since {};
  struct stat entry {};
  if (mark == nullptr || stat(mark, &since) != 0) return false;
  if (fstatat(directory, name, &entry, AT_SYMLINK_NOFOLLOW) != 0) return false;
  const auto time = [](const timespec& t) { return std::pair(t.tv_sec, t.tv_nsec); };
  return time(entry.st_ctim) < time(since.st_mtim);
}

/// What is really there, or what of it is settled.
Names names_in(DIR* listed, bool settled) {
  REAL(readdir);
  Names names;
  const int fd = openat(dirfd(listed), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const dir = fd < 0 ? nullptr : fdopendir(fd);
  if (dir == nullptr) return names;
  while (const dirent* const entry = real(dir)) {
    const auto* const name = static_cast<const char*>(entry->d_name);
    if (!settled || is_settled(fd, name)) names.insert(name);
  }
  closedir(dir);
  return names;
}

/// What is remembered of each directory.
class Listings {
 public:
  void forget(const struct stat& directory) {
    const std::lock_guard lock(mutex_);
    known_[key(directory)] = std::nullopt;
  }
  bool holds(const struct stat& directory, DIR* dir, const char* name) {
    const std::lock_guard lock(mutex_);
    const auto [at, is_first_look] = known_.try_emplace(key(directory));
    if (!at->second) at->second = names_in(dir, is_first_look);
    return at->second->count(name) > 0;
  }

 private:
  static std::pair<dev_t, ino_t> key(const struct stat& directory) { return {directory.st_dev, directory.st_ino}; }
  std::mutex mutex_;
  std::map<std::pair<dev_t, ino_t>, std::optional<Names>> known_;
};

Listings& listings() {
  static auto* const only = new Listings;  // other destructors may still list
  return *only;
}

/// A path's directory was changed by this process, which its client then looks at anew.
void changed(int at, const char* path) {
  const std::string whole = path;
  const std::size_t slash = whole.rfind('/');
  const std::string parent = slash == std::string::npos ? "." : whole.substr(0, slash + 1);
  struct stat directory {};
  if (fstatat(at, parent.c_str(), &directory, 0) == 0) listings().forget(directory);
}

bool is_hidden(DIR* dir, const char* name) {
  struct stat directory {};
  if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || fstat(dirfd(dir), &directory) != 0) return false;
  return !listings().holds(directory, dir, name);
}

template <typename Entry, typename F>
Entry* listed(DIR* dir, F* real) {
  while (true) {
    Entry* const entry = real(dir);
    if (entry == nullptr || !is_hidden(dir, static_cast<const char*>(entry->d_name))) return entry;
  }
}

bool is_deaf() {
  const char* const text = getenv("CKPT_LAG");
  return text != nullptr && strcmp(text, "deaf") == 0;
}

int note(int done, int at, const char* path) {
  if (done >= 0) changed(at, path);
  return done;
}

}  // namespace

extern "C" {

dirent* readdir(DIR* dir) {
  REAL(readdir);
  return listed<dirent>(dir, real);
}
dirent64* readdir64(DIR* dir) {
  REAL(readdir64);
  return listed<dirent64>(dir, real);
}

int statx(int at, const char* path, int flags, unsigned mask, struct statx* result) noexcept {
  struct stat directory {};
  if ((flags & AT_STATX_FORCE_SYNC) != 0 && !is_deaf() && fstatat(at, path, &directory, 0) == 0)
    listings().forget(directory);
  return static_cast<int>(syscall(SYS_statx, at, path, flags, mask, result));
}

#define DEFINE_OPENAT(NAME, AT, ...)                                                        \
  int NAME(__VA_ARGS__, int flags, ...) {                                                   \
    va_list rest;                                                                           \
    va_start(rest, flags);                                                                  \
    const auto mode = (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(rest, unsigned) : 0U; \
    va_end(rest);                                                                           \
    const int fd = static_cast<int>(syscall(SYS_openat, AT, path, flags, mode));            \
    return (flags & O_CREAT) != 0 ? note(fd, AT, path) : fd;                                \
  }
DEFINE_OPENAT(open, AT_FDCWD, const char* path)
DEFINE_OPENAT(open64, AT_FDCWD, const char* path)
DEFINE_OPENAT(openat, at, int at, const char* path)
DEFINE_OPENAT(openat64, at, int at, const char* path)

int mkdir(const char* path, mode_t mode) noexcept {
  REAL(mkdir);
  return note(real(path, mode), AT_FDCWD, path);
}
int symlink(const char* target, const char* path) noexcept {
  REAL(symlink);
  return note(real(target, path), AT_FDCWD, path);
}
int link(const char* from, const char* to) noexcept {
  REAL(link);
  return note(real(from, to), AT_FDCWD, to);
}
int linkat(int from_at, const char* from, int to_at, const char* to, int flags) noexcept {
  REAL(linkat);
  return note(real(from_at, from, to_at, to, flags), to_at, to);
}
int unlink(const char* path) noexcept {
  REAL(unlink);
  return note(real(path), AT_FDCWD, path);
}
int unlinkat(int at, const char* path, int flags) noexcept {
  REAL(unlinkat);
  return note(real(at, path, flags), at, path);
}
int rmdir(const char* path) noexcept {
  REAL(rmdir);
  return note(real(path), AT_FDCWD, path);
}
int rename(const char* from, const char* to) noexcept {
  REAL(rename);
  return note(note(real(from, to), AT_FDCWD, from), AT_FDCWD, to);
}
int renameat2(int from_at, const char* from, int to_at, const char* to, unsigned flags) noexcept {
  REAL(renameat2);
  return note(note(real(from_at, from, to_at, to, flags), from_at, from), to_at, to);
}
}
