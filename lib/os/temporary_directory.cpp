// SPDX-License-Identifier: Apache-2.0
#include "os/temporary_directory.hpp"

#include "os/file_lock.hpp"
#include "os/small_file.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

namespace ckpt::os {
namespace {

constexpr std::string_view directory_prefix = "ckpt-tmp.";

/// Nothing if it's gone, or isn't this user's directory.
std::optional<Fd> open_own(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  Fd directory(fd);
  if (stat_of(directory, path).st_uid != ::geteuid()) return std::nullopt;
  return directory;
}

void remove_dead(const std::string& parent) {
  for (const std::string& name : list_directory(parent).value_or(std::vector<std::string>{})) {
    if (!name.starts_with(directory_prefix)) continue;
    const std::string path = parent + "/" + name;
    const auto directory = open_own(path);
    if (!directory || !os::try_lock(*directory, path)) continue;
    std::error_code ignored;  // the next one tries again
    std::filesystem::remove_all(path, ignored);
  }
}

}  // namespace

TemporaryDirectory::TemporaryDirectory(const std::string& parent) {
  remove_dead(parent);
  while (true) {
    path_ = parent + "/" + std::string(directory_prefix) + "XXXXXX";
    if (::mkdtemp(path_.data()) == nullptr) throw_errno(errno, "cannot make a temporary directory in '" + parent + "'");
    auto directory = open_own(path_);
    // Another may have met it before it was locked, and taken it for a dead one's.
    if (!directory || !os::try_lock(*directory, path_) || stat_of(*directory, path_).st_nlink == 0) continue;
    lock_ = std::move(*directory);
    return;
  }
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;  // a destructor has no one to tell
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace ckpt::os
