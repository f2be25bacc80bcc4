// SPDX-License-Identifier: Apache-2.0
#include "os/small_file.hpp"

#include "os/fd.hpp"
#include "os/temporary_file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>

namespace ckpt::os {
namespace {

/// Lets whoever lists a directory next see what other hosts have made and removed there until now. Clients of network
/// file systems keep listings for a while (NFS: acdirmin to acdirmax), but no longer than the directory's attributes
/// stay the same, and these can be asked for. Does nothing on a file system that always knows.
void refresh_listing(const std::string& path) {
  struct statx attributes {};
  // Where that can't be done, the listing itself tells why.
  (void)::statx(AT_FDCWD, path.c_str(), AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &attributes);
}

}  // namespace

std::string parent_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::optional<std::string> read_small_file(const std::string& path, std::uint64_t limit) {
  const auto fd = open_if_exists(path, O_RDONLY | O_NONBLOCK);  // a pipe must not make it wait
  if (!fd) return std::nullopt;
  const struct stat st = stat_of(*fd, path);
  if (!S_ISREG(st.st_mode)) throw Error(Errc::damaged, "'" + path + "' is not a regular file");
  const auto size = static_cast<std::uint64_t>(st.st_size);
  if (size > limit) {
    throw Error(Errc::damaged,
                "'" + path + "' has " + std::to_string(size) + " bytes, more than " + std::to_string(limit));
  }
  std::string content(size, '\0');
  const std::size_t got = read_at(*fd, 0, std::as_writable_bytes(std::span(content)), path);
  content.resize(got);
  return content;
}

std::string read_kernel_file(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string content;
  std::array<char, 4096> chunk{};
  while (fd.valid()) {
    const ssize_t got = ::read(fd.get(), chunk.data(), chunk.size());
    if (got == 0) return content;
    if (got > 0) content.append(chunk.data(), static_cast<std::size_t>(got));
    if (got < 0 && errno != EINTR) break;
  }
  return {};
}

void write_small_file(const std::string& path, std::string_view content) {
  Fd file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  write_all(file, std::as_bytes(std::span(content)), path);
  file.close(path);
}

bool publish_small_file(const std::string& path, std::string_view content, Publish how, const std::string& scratch) {
  TemporaryFile temporary(scratch, 0666);
  write_all(temporary.fd(), std::as_bytes(std::span(content)), temporary.path());
  sync(temporary.fd(), temporary.path());
  if (how == Publish::replace) {
    if (::rename(temporary.path().c_str(), path.c_str()) != 0) throw_errno(errno, "cannot rename to '" + path + "'");
    temporary.forget_name();
  } else if (::link(temporary.path().c_str(), path.c_str()) != 0) {
    if (errno == EEXIST) return false;
    throw_errno(errno, "cannot link '" + path + "'");
  }
  sync_directory(parent_of(path));
  return true;
}

std::string existing_ancestor(const std::string& path) {
  std::string ancestor = path;
  while (!stat_path(ancestor) && ancestor != "." && ancestor != "/") ancestor = parent_of(ancestor);
  return ancestor;
}

std::optional<std::vector<std::string>> list_directory(const std::string& path) {
  refresh_listing(path);
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(path.c_str()), ::closedir);
  if (dir == nullptr) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    throw_errno(errno, "cannot list '" + path + "'");
  }
  std::vector<std::string> names;
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(dir.get());
    if (entry == nullptr) break;
    std::string name(static_cast<const char*>(entry->d_name));
    if (name != "." && name != "..") names.push_back(std::move(name));
  }
  if (errno != 0) throw_errno(errno, "cannot list '" + path + "'");
  std::sort(names.begin(), names.end());
  return names;
}

void remove_directory(const std::string& path) {
  refresh_listing(path);
  std::error_code failure;
  std::filesystem::remove_all(path, failure);
  if (failure) throw Error(Errc::io, "cannot remove '" + path + "': " + failure.message(), failure.value());
}

bool make_directory(const std::string& path) {
  while (true) {
    if (::mkdir(path.c_str(), 0777) == 0) {
      sync_directory(parent_of(path));
      return true;
    }
    if (errno != EEXIST) throw_errno(errno, "cannot make directory '" + path + "'");
    const auto st = stat_path(path);
    if (st && S_ISDIR(st->st_mode)) return false;
    const auto link = stat_path(path, false);
    if (link && !S_ISDIR(link->st_mode)) throw Error(Errc::exists, "'" + path + "' is there and not a directory");
    // Gone between the calls, or made anew: another try.
  }
}

void make_directories(const std::string& path) {
  const auto st = stat_path(path);
  if (st && S_ISDIR(st->st_mode)) return;
  const std::string parent = parent_of(path);
  if (parent != path && parent != ".") make_directories(parent);
  make_directory(path);
}

std::string host_name() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  std::string name(host.data());
  for (char& c : name) {
    if (c == '/' || c == '.') c = '_';
  }
  return name.empty() ? "_" : name;
}

std::string unique_name() {
  static std::atomic<unsigned> counter{0};
  std::uint64_t random = 0;
  if (::getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random) random = 0;
  std::array<char, 64> rest{};
  std::snprintf(rest.data(), rest.size(), ".%ld.%u-%016llx", static_cast<long>(::getpid()), counter++,
                static_cast<unsigned long long>(random));
  return host_name() + rest.data();
}

}  // namespace ckpt::os
