// SPDX-License-Identifier: Apache-2.0
#include "os/temporary_file.hpp"

#include "os/file_lock.hpp"
#include "os/small_file.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>

namespace ckpt::os {
namespace {

constexpr time_t give_up_after = 7 * 24 * 3600;

std::string new_name() { return std::string(temporary_prefix) + unique_name(); }

/// unique_name() begins with the host's name.
std::string host_of(const std::string& name) {
  const std::string unique = name.substr(temporary_prefix.size());
  return unique.substr(0, unique.find('.'));
}

}  // namespace

TemporaryFile::TemporaryFile(const std::string& directory, unsigned mode) {
  while (true) {
    path_ = directory + "/" + new_name();
    fd_ = open(path_, O_RDWR | O_CREAT | O_EXCL, mode);
    if (!os::try_lock(fd_, path_)) continue;
    // A cleaner may have met the file before it was locked, and taken it for a dead writer's.
    if (stat_of(fd_, path_).st_nlink > 0) return;
  }
}

TemporaryFile::~TemporaryFile() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

Fd TemporaryFile::share() const {
  const int fd = ::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0);
  if (fd < 0) throw_errno(errno, "cannot duplicate a descriptor");
  return Fd(fd);
}

void remove_dead_temporaries(const std::string& directory) {
  std::vector<std::string> names = list_directory(directory).value_or(std::vector<std::string>{});
  std::erase_if(names, [](const std::string& name) { return !name.starts_with(temporary_prefix); });
  if (names.empty()) return;
  // The file system's clock: the age of a file is only known against another file's.
  const TemporaryFile probe(directory, 0600);
  const time_t now = stat_of(probe.fd(), probe.path()).st_mtime;
  const std::string here = host_of(new_name());
  for (const std::string& name : names) {
    const std::string path = directory + "/" + name;
    try {
      const auto fd = open_if_exists(path, O_RDONLY | O_NOFOLLOW);
      if (!fd) continue;
      const bool dead = host_of(name) == here && os::try_lock(*fd, path);
      const bool old = stat_of(*fd, path).st_mtime + give_up_after < now;
      if (dead || old) ::unlink(path.c_str());
    } catch (const Error&) {
      continue;  // another user's file: for that user's next save
    }
  }
}

}  // namespace ckpt::os
