// SPDX-License-Identifier: Apache-2.0
// Other bytes in the place of some of a shard's, block by block, while it's encoded anew.
#pragma once

#include "format/block_decoder.hpp"
#include "format/container_reader.hpp"
#include "ops/shard_bytes.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace ckpt::ops {

/// Thread-safe. The same block is always changed in the same way.
class ContentChange {
 public:
  virtual ~ContentChange() = default;
  [[nodiscard]] virtual bool touches(std::uint64_t block) const = 0;
  /// Changes all of a block's bytes in place.
  virtual void apply(std::uint64_t block, std::span<std::byte> raw) const = 0;
};

/// The bytes of a shard as they'll be.
class ChangedBytes final : public ShardBytes {
 public:
  ChangedBytes(const format::ContainerReader& container, const ContentChange& change)
      : container_(container), change_(change) {}
  [[nodiscard]] ByteView read(std::size_t file, std::uint64_t offset, std::uint64_t size,
                              os::AlignedBuffer& buffer) const override;

 private:
  const format::ContainerReader& container_;
  const ContentChange& change_;
};

}  // namespace ckpt::ops
