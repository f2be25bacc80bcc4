// SPDX-License-Identifier: Apache-2.0
#include "ops/incoming_lock.hpp"

#include "os/file_lock.hpp"
#include "os/small_file.hpp"
#include "store/store.hpp"

#include <ckpt/error.hpp>

#include <fcntl.h>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <optional>
#include <thread>

namespace ckpt::ops {
namespace {

constexpr auto lock_patience = std::chrono::seconds(10);
constexpr std::string_view fresh_mark = ".new.";

bool is_at(const os::Fd& fd, const std::string& path) {
  const auto there = os::stat_path(path);
  return there && there->st_ino == os::stat_of(fd, path).st_ino;
}

std::optional<os::Fd> open_directory(const std::string& path) {
  return os::open_if_exists(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

/// The lock of a directory that is there, whoever holds it; nothing if there's none. The file that is locked becomes
/// the manifest shortly before the whole directory gets its name: so one who finds it under that name, and not locked,
/// finds what a dead one has nearly finished.
std::optional<os::Fd> open_lock(const std::string& directory) {
  if (auto lock = os::open_if_exists(directory + incoming_lock, O_RDWR | O_NOFOLLOW)) return lock;
  const std::string manifest = directory + "/" + store::manifest_file;
  auto lock = os::open_if_exists(manifest, O_RDWR | O_NOFOLLOW);
  if (!lock || !os::try_lock(*lock, manifest) || !is_at(*lock, manifest)) return lock;
  rename_or_throw(manifest, directory + incoming_lock);
  return lock;
}

/// Makes the directory with the lock in it at once: in one that is there already the lock isn't made, since it might
/// get its name in this moment, and keep the lock for ever.
void make_locked_directory(const std::string& directory) {
  const std::string fresh = directory + std::string(fresh_mark) + os::unique_name();
  os::make_directory(fresh);
  // As long as it's locked it isn't a dead one's; one who met it before that may have taken it for that.
  const auto alive = open_directory(fresh);
  if (!alive || !os::try_lock(*alive, fresh) || os::stat_of(*alive, fresh).st_nlink == 0) return;
  (void)os::open(fresh + incoming_lock, O_RDWR | O_CREAT | O_NOFOLLOW, 0644);
  if (::rename(fresh.c_str(), directory.c_str()) == 0) return;
  const int why = errno;
  os::remove_directory(fresh);
  if (why != EEXIST && why != ENOTEMPTY) os::throw_errno(why, "cannot make '" + directory + "'");
  // One who died while it removed the directory has left it with neither file, and no one publishes it.
  const std::string lock = directory + incoming_lock;
  if (os::exists(lock) || os::exists(directory + "/" + store::manifest_file)) return;
  const os::Fd made(::open(lock.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!made.valid() && errno != ENOENT) os::throw_errno(errno, "cannot open '" + lock + "'");
}

}  // namespace

void rename_or_throw(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) os::throw_errno(errno, "cannot rename '" + from + "' to '" + to + "'");
}

bool remove_if_never_named(const std::string& directory) {
  const std::size_t mark = directory.rfind(fresh_mark);
  if (mark == std::string::npos) return false;
  const std::string unique = directory.substr(mark + fresh_mark.size());
  const std::string here = os::unique_name();
  if (unique.substr(0, unique.find('.')) != here.substr(0, here.find('.'))) return false;
  const auto found = open_directory(directory);
  if (found && os::try_lock(*found, directory)) os::remove_directory(directory);
  return true;
}

os::Fd lock_incoming(const std::string& directory) {
  const std::string path = directory + incoming_lock;
  const auto deadline = std::chrono::steady_clock::now() + lock_patience;
  while (true) {
    auto lock = open_lock(directory);
    if (lock && os::try_lock(*lock, path) && is_at(*lock, path)) return std::move(*lock);
    if (std::chrono::steady_clock::now() > deadline)
      throw Error(Errc::busy, "'" + directory + "' is being written by another sync");
    if (!lock)
      make_locked_directory(directory);
    else
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace ckpt::ops
