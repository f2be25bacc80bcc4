// SPDX-License-Identifier: Apache-2.0
// The raw bytes of a shard's files, by their place: from the files that are being saved, or from a container that is
// encoded anew.
#pragma once

#include "core/bytes.hpp"
#include "format/container_reader.hpp"
#include "ops/content_change.hpp"
#include "os/aligned_buffer.hpp"
#include "source/source_tree.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace ckpt::ops {

/// Thread-safe.
class ShardBytes {
 public:
  virtual ~ShardBytes() = default;
  /// Exactly the bytes [offset, offset + size) of a file, by its number in the catalog; a view into `buffer`.
  [[nodiscard]] virtual ByteView read(std::size_t file, std::uint64_t offset, std::uint64_t size,
                                      os::AlignedBuffer& buffer) const = 0;
  /// The same, or nothing where the bytes are gone: taken from the memory that held them.
  [[nodiscard]] virtual std::optional<ByteView> read_if_held(std::size_t file, std::uint64_t offset, std::uint64_t size,
                                                             os::AlignedBuffer& buffer) const {
    return read(file, offset, size, buffer);
  }
};

/// Throws Errc::busy if a file isn't what it was when it was found.
class SourceBytes final : public ShardBytes {
 public:
  /// `entries` outlive this object.
  explicit SourceBytes(const std::vector<source::TreeEntry>& entries) : entries_(entries) {}
  [[nodiscard]] ByteView read(std::size_t file, std::uint64_t offset, std::uint64_t size,
                              os::AlignedBuffer& buffer) const override;
  [[nodiscard]] std::optional<ByteView> read_if_held(std::size_t file, std::uint64_t offset, std::uint64_t size,
                                                     os::AlignedBuffer& buffer) const override;

 private:
  const std::vector<source::TreeEntry>& entries_;
};

/// Throws Damaged.
class StoredBytes final : public ShardBytes {
 public:
  /// `container` outlives this object, and so does `change`: with it the bytes are given as they will be.
  explicit StoredBytes(const format::ContainerReader& container, const ContentChange* change = nullptr)
      : container_(container), change_(change) {}
  [[nodiscard]] ByteView read(std::size_t file, std::uint64_t offset, std::uint64_t size,
                              os::AlignedBuffer& buffer) const override;

 private:
  const format::ContainerReader& container_;
  const ContentChange* change_;
};

}  // namespace ckpt::ops
