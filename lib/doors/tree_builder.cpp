// SPDX-License-Identifier: Apache-2.0
#include "doors/tree_builder.hpp"

#include "format/path_rules.hpp"
#include "os/small_file.hpp"

#include <ckpt/error.hpp>

#include <fcntl.h>
#include <unistd.h>
#include <array>
#include <cerrno>

namespace ckpt::doors {
namespace {

using format::EntryType;

constexpr std::int64_t nanoseconds = 1'000'000'000;

/// Only the modification time is anyone's business.
std::array<struct timespec, 2> times_of(const format::FileEntry& entry) {
  std::int64_t seconds = entry.mtime_ns / nanoseconds;
  std::int64_t rest = entry.mtime_ns % nanoseconds;
  if (rest < 0) {
    rest += nanoseconds;
    --seconds;
  }
  return {{{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, {.tv_sec = seconds, .tv_nsec = rest}}};
}

void make_new_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0) os::throw_errno(errno, "cannot make '" + path + "'");
}

}  // namespace

TreeBuilder::TreeBuilder(std::string root) : root_(std::move(root)) { make_new_directory(root_); }

void TreeBuilder::make_parents(const std::string& path) {
  if (!format::is_safe_path(path)) throw Error(Errc::malformed, "the name '" + path + "' would leave the tree");
  for (std::size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    const std::string above = path.substr(0, slash);
    if (made_.insert(above).second) make_new_directory(path_of(above));
  }
}

void TreeBuilder::add(const format::FileEntry& entry) {
  if (entry.type == EntryType::directory && made_.contains(entry.path)) {
    directories_.push_back(entry);
    return;
  }
  make_parents(entry.path);
  const std::string path = path_of(entry.path);
  switch (entry.type) {
    case EntryType::directory:
      make_new_directory(path);
      made_.insert(entry.path);
      directories_.push_back(entry);
      return;
    case EntryType::symlink: {
      // A save follows what leads out of its tree.
      if (!format::stays_inside(entry.path, entry.target))
        throw Error(Errc::malformed, "the link '" + entry.path + "' would leave the tree");
      if (::symlink(entry.target.c_str(), path.c_str()) != 0) os::throw_errno(errno, "cannot make '" + path + "'");
      if (entry.uid && ::lchown(path.c_str(), *entry.uid, *entry.gid) != 0)
        os::throw_errno(errno, "cannot set the owner of '" + path + "'");
      const auto times = times_of(entry);
      if (::utimensat(AT_FDCWD, path.c_str(), times.data(), AT_SYMLINK_NOFOLLOW) != 0)
        os::throw_errno(errno, "cannot set the time of '" + path + "'");
      return;
    }
    case EntryType::hardlink:
      make_parents(entry.target);
      if (::link(path_of(entry.target).c_str(), path.c_str()) != 0)
        os::throw_errno(errno, "cannot link '" + path + "'");
      return;
    case EntryType::file: break;
  }
  throw Error(Errc::malformed, "'" + entry.path + "' is a file");
}

os::Fd TreeBuilder::create_file(const format::FileEntry& entry) {
  make_parents(entry.path);
  return os::open(path_of(entry.path), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
}

void TreeBuilder::finish_file(const os::Fd& file, const format::FileEntry& entry) const {
  const std::string path = path_of(entry.path);
  if (entry.uid && ::fchown(file.get(), *entry.uid, *entry.gid) != 0)
    os::throw_errno(errno, "cannot set the owner of '" + path + "'");
  if (::fchmod(file.get(), entry.mode & 07777U) != 0) os::throw_errno(errno, "cannot set the mode of '" + path + "'");
  const auto times = times_of(entry);
  if (::futimens(file.get(), times.data()) != 0) os::throw_errno(errno, "cannot set the time of '" + path + "'");
}

void TreeBuilder::finish() {
  for (auto entry = directories_.rbegin(); entry != directories_.rend(); ++entry) {
    finish_file(os::open(path_of(entry->path), O_RDONLY | O_DIRECTORY | O_NOFOLLOW), *entry);
  }
}

}  // namespace ckpt::doors
