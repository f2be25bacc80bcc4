// SPDX-License-Identifier: Apache-2.0
// Reads a file at full speed wherever its bytes are: what the page cache holds is copied from there, the rest is
// read past the cache, so that a scrub or a restore doesn't push the trainer's pages out.
#pragma once

#include "os/aligned_buffer.hpp"
#include "os/fd.hpp"

#include <cstdint>
#include <span>
#include <string>

namespace ckpt::os {

enum class CacheUse {
  adaptive,  ///< from the cache where it's there, else past it
  bypass,    ///< always past the cache, where the file system can: what's read is what the device holds
};

/// Thread-safe: read() may be called from several threads, each with its own buffer.
class AdaptiveReader {
 public:
  /// Throws not_found, io.
  explicit AdaptiveReader(const std::string& path, CacheUse use = CacheUse::adaptive);

  [[nodiscard]] const std::string& path() const { return path_; }
  /// At the time of opening.
  [[nodiscard]] std::uint64_t size() const { return size_; }
  [[nodiscard]] const struct stat& status() const { return status_; }
  [[nodiscard]] const Fd& fd() const { return cached_; }

  /// The bytes [offset, offset + size), as a view into `buffer`, which grows as needed. Fewer bytes than asked for
  /// mean that the file ends there.
  [[nodiscard]] std::span<const std::byte> read(std::uint64_t offset, std::uint64_t size, AlignedBuffer& buffer) const;
  /// True if the range is in the page cache. Then it's best read in small pieces, which the processor's own cache holds
  /// until they're used; else in large ones.
  [[nodiscard]] bool is_cached(std::uint64_t offset, std::uint64_t size) const;
  /// As read(), through the page cache whatever it holds.
  [[nodiscard]] std::span<const std::byte> read_through_cache(std::uint64_t offset, std::uint64_t size,
                                                              AlignedBuffer& buffer) const;

 private:
  std::string path_;
  Fd cached_;
  Fd direct_;  ///< not valid where the file system has no O_DIRECT
  struct stat status_ {};
  std::uint64_t size_ = 0;
  CacheUse use_;
};

}  // namespace ckpt::os
