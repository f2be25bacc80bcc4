// SPDX-License-Identifier: Apache-2.0
#include "os/temporary_file.hpp"

#include "os/file_lock.hpp"
#include "os/small_file.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>

namespace ckpt::os {
namespace {

std::string new_name(std::string_view prefix, std::string_view suffix) {
  std::string name = std::string(prefix) + unique_name();
  if (!suffix.empty()) name += "." + std::string(suffix);
  return name;
}

/// unique_name() begins with the host's name.
std::string host_of(const std::string& name, std::string_view prefix) {
  const std::string unique = name.substr(prefix.size());
  return unique.substr(0, unique.find('.'));
}

std::vector<std::string> names_with(const std::string& directory, std::string_view prefix) {
  std::vector<std::string> names = list_directory(directory).value_or(std::vector<std::string>{});
  std::erase_if(names, [&](const std::string& name) { return !name.starts_with(prefix); });
  return names;
}

}  // namespace

TemporaryFile::TemporaryFile(const std::string& directory, unsigned mode, std::string_view prefix,
                             std::string_view suffix) {
  while (true) {
    path_ = directory + "/" + new_name(prefix, suffix);
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

std::int64_t file_system_time(const std::string& directory) {
  const TemporaryFile probe(directory, 0600);
  return stat_of(probe.fd(), probe.path()).st_mtime;
}

void remove_dead_temporaries(const std::string& directory, std::string_view prefix) {
  const std::vector<std::string> names = names_with(directory, prefix);
  if (names.empty()) return;
  const std::int64_t now = file_system_time(directory);
  const std::string here = host_of(new_name(prefix, {}), prefix);
  for (const std::string& name : names) {
    const std::string path = directory + "/" + name;
    try {
      const auto fd = open_if_exists(path, O_RDONLY | O_NOFOLLOW);
      if (!fd) continue;
      const bool dead = host_of(name, prefix) == here && os::try_lock(*fd, path);
      const bool old = stat_of(*fd, path).st_mtime + dead_after < now;
      if (dead || old) ::unlink(path.c_str());
    } catch (const Error&) {
      continue;  // another user's file: for that user's next save
    }
  }
}

std::set<std::string> unlocked_temporaries(const std::string& directory, std::string_view prefix) {
  std::set<std::string> unlocked;
  const std::string here = host_of(new_name(prefix, {}), prefix);
  for (const std::string& name : names_with(directory, prefix)) {
    const std::string path = directory + "/" + name;
    const auto fd = host_of(name, prefix) == here ? open_if_exists(path, O_RDONLY | O_NOFOLLOW) : std::nullopt;
    if (fd && try_lock(*fd, path)) unlocked.insert(name);
  }
  return unlocked;
}

}  // namespace ckpt::os
