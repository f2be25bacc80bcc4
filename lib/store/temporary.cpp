// SPDX-License-Identifier: Apache-2.0
#include "store/temporary.hpp"

#include "os/file_lock.hpp"
#include "os/small_file.hpp"
#include "store/swap.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>
#include <cstdio>

namespace ckpt::store {
namespace {

constexpr time_t give_up_after = 7 * 24 * 3600;

/// unique_name() begins with the host's name.
std::string host_part(const std::string& unique) { return unique.substr(0, unique.find('.')); }

/// The file system's clock: the age of a file is only known against another file's.
time_t file_system_now(const Store& store) {
  const Temporary probe(store, 0600);
  return os::stat_path(probe.path())->st_mtime;
}

void clean_scratch(const Store& store) {
  const auto names = os::list_directory(store.scratch()).value_or(std::vector<std::string>{});
  if (names.empty()) return;
  const std::string here = host_part(os::unique_name());
  const time_t now = file_system_now(store);
  for (const std::string& name : names) {
    const std::string path = store.scratch() + "/" + name;
    const auto fd = os::open_if_exists(path, O_RDONLY | O_NOFOLLOW);
    if (!fd) continue;
    // Small files aren't locked; their prefix tells them, and they're never in the making for long.
    const bool small = name.starts_with("small.");
    const std::string owner = host_part(small ? name.substr(6) : name);
    const bool old = os::stat_of(*fd, path).st_mtime + (small && owner == here ? 60 : give_up_after) < now;
    const bool dead = !small && owner == here && os::try_lock(*fd, path);
    if (dead || old) ::unlink(path.c_str());
  }
}

}  // namespace

Temporary::Temporary(const Store& store, unsigned mode) {
  while (true) {
    path_ = store.scratch() + "/" + os::unique_name();
    fd_ = os::open(path_, O_RDWR | O_CREAT | O_EXCL, mode);
    if (!os::try_lock(fd_, path_)) continue;
    // A cleaner may have met the file before it was locked, and taken it for a dead one's.
    if (os::stat_of(fd_, path_).st_nlink > 0) return;
  }
}

Temporary::~Temporary() { ::unlink(path_.c_str()); }

os::Fd Temporary::share() const {
  const int fd = ::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0);
  if (fd < 0) os::throw_errno(errno, "cannot duplicate a descriptor");
  return os::Fd(fd);
}

void clean_leftovers(const Store& store) {
  clean_scratch(store);
  clean_dead_swaps(store);
  for (const std::string& name : os::list_directory(store.pending()).value_or(std::vector<std::string>{})) {
    // Fails where a shard is in it, which is as it should be.
    if (parse_set_name(name)) ::rmdir((store.pending() + "/" + name).c_str());
  }
}

}  // namespace ckpt::store
