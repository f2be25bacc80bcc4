// SPDX-License-Identifier: Apache-2.0
#include "ops/destination.hpp"

#include "os/small_file.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <filesystem>
#include <system_error>

namespace ckpt::ops {
namespace {

std::string directory_part(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

std::string last_part(const std::string& path) { return std::string(os::last_name_of(path)); }

[[noreturn]] void fail(const std::string& what, const std::string& path) {
  os::throw_errno(errno, "cannot " + what + " '" + path + "'");
}

std::string without_trailing_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

void require_outside(const std::string& store, const std::string& path) {
  // As far as it's there, links are followed; what isn't there yet can't lead anywhere else.
  std::error_code unknown;
  const std::filesystem::path inside = std::filesystem::weakly_canonical(without_trailing_slashes(path), unknown);
  if (unknown) return;  // making something there says why
  const std::filesystem::path top = std::filesystem::canonical(store, unknown);
  if (unknown || std::mismatch(top.begin(), top.end(), inside.begin(), inside.end()).first != top.end()) return;
  throw Error(Errc::invalid_argument, "'" + path + "' lies in the store '" + store + "'")
      .with_hint("what is in a store's directory belongs to the store: choose another place");
}

Destination::Destination(const std::string& root) : root_path_(without_trailing_slashes(root)) {
  std::string open_path = root_path_;
  if (!os::exists(root_path_)) {
    staging_path_ = root_path_ + ".ckpt-restore." + os::unique_name();
    if (::mkdir(staging_path_.c_str(), 0777) != 0) fail("make directory", staging_path_);
    open_path = staging_path_;
  }
  root_ = os::open(open_path, O_RDONLY | O_DIRECTORY);
}

Destination::~Destination() {
  if (committed_) return;
  std::error_code ignored;
  if (!staging_path_.empty()) {
    std::filesystem::remove_all(staging_path_, ignored);
    return;
  }
  for (const Renaming& file : files_) ::unlinkat(root_.get(), file.from.c_str(), 0);
  for (auto it = made_.rbegin(); it != made_.rend(); ++it) ::unlinkat(root_.get(), it->c_str(), AT_REMOVEDIR);
}

std::optional<os::Fd> Destination::find_parent(const std::string& path) const {
  os::Fd at(::fcntl(root_.get(), F_DUPFD_CLOEXEC, 0));
  if (!at.valid()) fail("open", root_path_);
  const std::string directory = directory_part(path);
  for (std::size_t begin = 0; begin < directory.size();) {
    const std::size_t end = std::min(directory.find('/', begin), directory.size());
    const std::string name = directory.substr(begin, end - begin);
    os::Fd next(::openat(at.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!next.valid()) {
      if (errno == ENOENT) return std::nullopt;
      const bool in_the_way = errno == ENOTDIR || errno == ELOOP;
      if (!in_the_way) fail("open", root_path_ + "/" + directory.substr(0, end));
      throw Error(Errc::exists,
                  "'" + root_path_ + "/" + directory.substr(0, end) + "' is in the way: it's not a directory");
    }
    at = std::move(next);
    begin = end + 1;
  }
  return at;
}

os::Fd Destination::open_parent(const std::string& path, bool make) {
  if (auto parent = find_parent(path)) return std::move(*parent);
  if (!make) throw Error(Errc::not_found, "'" + root_path_ + "/" + directory_part(path) + "' is gone");
  make_directory(directory_part(path));
  return open_parent(path, false);
}

std::optional<struct stat> Destination::status(const std::string& path) const {
  const auto parent = find_parent(path);
  if (!parent) return std::nullopt;
  struct stat st {};
  if (::fstatat(parent->get(), last_part(path).c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0) return st;
  if (errno == ENOENT) return std::nullopt;
  fail("stat", root_path_ + "/" + path);
}

os::Fd Destination::open_for_reading(const std::string& path) const {
  const auto parent = find_parent(path);
  if (!parent) throw Error(Errc::not_found, "'" + root_path_ + "/" + path + "' is gone");
  return os::open_at(*parent, last_part(path), O_RDONLY | O_NOFOLLOW);
}

std::string Destination::read_link(const std::string& path) const {
  const auto parent = find_parent(path);
  std::array<char, PATH_MAX> target{};
  const ssize_t size = parent ? ::readlinkat(parent->get(), last_part(path).c_str(), target.data(), target.size()) : -1;
  if (size < 0) fail("read the link", root_path_ + "/" + path);
  return {target.data(), static_cast<std::size_t>(size)};
}

std::string Destination::temporary_for(const std::string& path) const {
  if (!staging_path_.empty()) return path;
  const std::string directory = directory_part(path);
  return (directory.empty() ? "" : directory + "/") + ".ckpt-restore." + os::unique_name();
}

os::Fd Destination::create_file(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const std::string from = temporary_for(path);
  const os::Fd parent = open_parent(from, true);
  os::Fd file = os::open_at(parent, last_part(from), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
  files_.push_back({.from = from, .to = path});
  return file;
}

void Destination::make_directory(const std::string& path) {
  if (path.empty()) return;
  make_directory(directory_part(path));
  const auto parent = find_parent(path);
  if (!parent) throw Error(Errc::not_found, "'" + root_path_ + "/" + directory_part(path) + "' is gone");
  if (::mkdirat(parent->get(), last_part(path).c_str(), 0777) == 0) {
    made_.push_back(path);
    return;
  }
  if (errno != EEXIST) fail("make directory", root_path_ + "/" + path);
  struct stat st {};
  if (::fstatat(parent->get(), last_part(path).c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode)) return;
  throw Error(Errc::exists, "'" + root_path_ + "/" + path + "' is in the way: it's not a directory");
}

void Destination::add_symlink(const std::string& path, const std::string& target) {
  symlinks_.push_back({path, target});
}
void Destination::add_hardlink(const std::string& path, const std::string& target) {
  hardlinks_.push_back({path, target});
}

void Destination::rename_into_place(const Renaming& renaming) {
  if (renaming.from == renaming.to) return;
  const os::Fd parent = open_parent(renaming.to, false);
  if (::renameat(parent.get(), last_part(renaming.from).c_str(), parent.get(), last_part(renaming.to).c_str()) != 0) {
    fail("rename to", root_path_ + "/" + renaming.to);
  }
}

void Destination::commit() {
  for (const Renaming& file : files_) rename_into_place(file);
  files_.clear();
  for (const Link& link : hardlinks_) {
    const Renaming renaming{.from = temporary_for(link.path), .to = link.path};
    const os::Fd parent = open_parent(renaming.from, true);
    const os::Fd other = open_parent(link.target, false);
    if (::linkat(other.get(), last_part(link.target).c_str(), parent.get(), last_part(renaming.from).c_str(), 0) != 0) {
      fail("link", root_path_ + "/" + link.path);
    }
    rename_into_place(renaming);
    // Renaming one name of a file over another name of it does nothing and leaves both.
    if (renaming.from != renaming.to) ::unlinkat(parent.get(), last_part(renaming.from).c_str(), 0);
  }
  for (const Link& link : symlinks_) {
    const Renaming renaming{.from = temporary_for(link.path), .to = link.path};
    const os::Fd parent = open_parent(renaming.from, true);
    if (::symlinkat(link.target.c_str(), parent.get(), last_part(renaming.from).c_str()) != 0) {
      fail("make the link", root_path_ + "/" + link.path);
    }
    rename_into_place(renaming);
  }
  if (!staging_path_.empty() && ::rename(staging_path_.c_str(), root_path_.c_str()) != 0) fail("make", root_path_);
  committed_ = true;
}

void Destination::set_attributes(const std::string& path, std::uint32_t mode, std::int64_t mtime_ns) const {
  const auto parent = find_parent(path);
  if (!parent) return;
  const std::string name = last_part(path);
  struct stat st {};
  if (::fstatat(parent->get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) fail("stat", root_path_ + "/" + path);
  if (!S_ISLNK(st.st_mode) && (st.st_mode & 07777U) != mode && ::fchmodat(parent->get(), name.c_str(), mode, 0) != 0) {
    fail("change the mode of", root_path_ + "/" + path);
  }
  constexpr std::int64_t giga = 1'000'000'000;
  const std::int64_t seconds = mtime_ns / giga - (mtime_ns % giga < 0 ? 1 : 0);
  const std::array<timespec, 2> times = {timespec{.tv_sec = 0, .tv_nsec = UTIME_OMIT},
                                         timespec{.tv_sec = seconds, .tv_nsec = mtime_ns - seconds * giga}};
  if (::utimensat(parent->get(), name.c_str(), times.data(), AT_SYMLINK_NOFOLLOW) != 0) {
    fail("change the times of", root_path_ + "/" + path);
  }
}

}  // namespace ckpt::ops
