// SPDX-License-Identifier: Apache-2.0
// preadv2(RWF_NOWAIT) gives what the cache holds and stops at the first page that isn't there; O_DIRECT reads on.
#include "os/adaptive_reader.hpp"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>

namespace ckpt::os {
namespace {

std::size_t read_from_cache(const Fd& fd, std::uint64_t offset, std::span<std::byte> into) {
  std::size_t done = 0;
  while (done < into.size()) {
    const iovec piece{into.data() + done, into.size() - done};
    const ssize_t n = ::preadv2(fd.get(), &piece, 1, static_cast<off_t>(offset + done), RWF_NOWAIT);
    if (n <= 0) break;  // not cached, or not known to this file system: the caller reads on another way
    done += static_cast<std::size_t>(n);
  }
  return done;
}

/// A read past the cache may end short at the end of the file only.
std::size_t read_direct(const Fd& fd, std::uint64_t offset, std::span<std::byte> into, const std::string& path) {
  std::size_t done = 0;
  while (done < into.size()) {
    const ssize_t n = ::pread(fd.get(), into.data() + done, into.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_errno(errno, "cannot read '" + path + "' at byte " + std::to_string(offset + done));
    done += static_cast<std::size_t>(n);
    if (n == 0 || static_cast<std::size_t>(n) % direct_alignment != 0) break;
  }
  return done;
}

}  // namespace

AdaptiveReader::AdaptiveReader(const std::string& path, CacheUse use)
    : path_(path), cached_(open(path, O_RDONLY)), use_(use) {
  status_ = stat_of(cached_, path);
  if (!S_ISREG(status_.st_mode)) throw Error(Errc::io, "'" + path + "' is not a regular file");
  size_ = static_cast<std::uint64_t>(status_.st_size);
  // Opened through the descriptor, so that both are the same file whatever happens to the name.
  const std::string self = "/proc/self/fd/" + std::to_string(cached_.get());
  direct_ = Fd(::open(self.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT));
  if (!direct_.valid()) direct_ = Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT));
  struct stat other {};
  if (direct_.valid() && (::fstat(direct_.get(), &other) != 0 || other.st_ino != status_.st_ino)) direct_ = Fd();
}

std::span<const std::byte> AdaptiveReader::read(std::uint64_t offset, std::uint64_t size, AlignedBuffer& buffer) const {
  const std::uint64_t begin = offset / direct_alignment * direct_alignment;
  const std::uint64_t lead = offset - begin;
  const std::uint64_t span = (lead + size + direct_alignment - 1) / direct_alignment * direct_alignment;
  buffer.reserve(span);
  const std::span<std::byte> into(buffer.data(), span);

  std::size_t got = 0;
  if (use_ == CacheUse::adaptive) got = read_from_cache(cached_, begin, into);
  if (got < lead + size) {
    got = got / direct_alignment * direct_alignment;
    got += direct_.valid() ? read_direct(direct_, begin + got, into.subspan(got), path_)
                           : read_at(cached_, begin + got, into.subspan(got), path_);
  }
  if (got <= lead) return {};
  return into.subspan(lead, std::min<std::uint64_t>(size, got - lead));
}

}  // namespace ckpt::os
