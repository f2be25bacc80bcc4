// SPDX-License-Identifier: Apache-2.0
#include "os/adaptive_reader.hpp"

#include "os/page_cache.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <optional>

namespace ckpt::os {
namespace {

/// A read past the cache may end short at the end of the file only. Nothing, if the file system took the flag and
/// refuses the read.
std::optional<std::size_t> read_direct(const Fd& fd, std::uint64_t offset, std::span<std::byte> into,
                                       const std::string& path) {
  std::size_t done = 0;
  while (done < into.size()) {
    const ssize_t n = ::pread(fd.get(), into.data() + done, into.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EINVAL) return std::nullopt;
    if (n < 0) throw_errno(errno, "cannot read '" + path + "' at byte " + std::to_string(offset + done));
    done += static_cast<std::size_t>(n);
    if (n == 0 || static_cast<std::size_t>(n) % direct_alignment != 0) break;
  }
  return done;
}

}  // namespace

AdaptiveReader::AdaptiveReader(const std::string& path, CacheUse use)
    : path_(path), cached_(open(path, O_RDONLY | O_NONBLOCK)), use_(use) {  // a pipe must not make it wait
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

bool AdaptiveReader::is_cached(std::uint64_t offset, std::uint64_t size) const {
  if (use_ == CacheUse::bypass) return false;
  return os::is_cached(cached_, offset, std::min(size, size_ - std::min(size_, offset)));
}

std::span<const std::byte> AdaptiveReader::read_through_cache(std::uint64_t offset, std::uint64_t size,
                                                              AlignedBuffer& buffer) const {
  buffer.reserve(size);
  return {buffer.data(), read_at(cached_, offset, {buffer.data(), size}, path_)};
}

std::span<const std::byte> AdaptiveReader::read(std::uint64_t offset, std::uint64_t size, AlignedBuffer& buffer) const {
  if (!direct_.valid() || is_cached(offset, size)) return read_through_cache(offset, size, buffer);
  const std::uint64_t begin = offset / direct_alignment * direct_alignment;
  const std::uint64_t lead = offset - begin;
  const std::uint64_t span = (lead + size + direct_alignment - 1) / direct_alignment * direct_alignment;
  buffer.reserve(span);
  const std::span<std::byte> into(buffer.data(), span);
  const auto got_direct = read_direct(direct_, begin, into, path_);
  if (!got_direct) return read_through_cache(offset, size, buffer);
  const std::size_t got = *got_direct;
  if (got <= lead) return {};
  return into.subspan(lead, std::min<std::uint64_t>(size, got - lead));
}

}  // namespace ckpt::os
