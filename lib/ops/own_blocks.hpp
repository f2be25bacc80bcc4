// SPDX-License-Identifier: Apache-2.0
// Blocks of one shard that are the same as an earlier one: tied weights, copies, buffers of zeros.
#pragma once

#include "format/container_writer.hpp"

#include <cstdint>
#include <unordered_map>

namespace ckpt::ops {

/// Raw bytes of a block below which a reference costs as much as they do.
inline constexpr std::uint64_t least_referred = 512;

/// Sees the blocks in their order. Used from one thread.
class OwnBlocks {
 public:
  explicit OwnBlocks(std::uint32_t rank) : rank_(rank) {}

  /// The block as it's given, or a reference to an earlier one with the same bytes where that is smaller and the chain
  /// doesn't pass `deepest`.
  [[nodiscard]] format::StoredBlock add(const format::StoredBlock& block, std::uint64_t number, std::uint64_t raw_size,
                                        std::uint8_t deepest) {
    if (block.codec == codec::Codec::reference || raw_size < least_referred) return block;
    const auto [known, is_new] = by_hash_.try_emplace(block.hash, Earlier{number, raw_size, block.depth});
    if (is_new || known->second.raw_size != raw_size || known->second.depth >= deepest) return block;
    return {.codec = codec::Codec::reference,
            .stored = {},
            .hash = block.hash,
            .depth = static_cast<std::uint8_t>(known->second.depth + 1),
            .base = format::BaseRef{
                .checkpoint = format::own_shard, .rank = rank_, .block = known->second.number, .hash = block.hash}};
  }

 private:
  struct Earlier {
    std::uint64_t number = 0;
    std::uint64_t raw_size = 0;
    std::uint8_t depth = 0;
  };
  std::uint32_t rank_;
  std::unordered_map<Digest, Earlier, DigestHash> by_hash_;
};

}  // namespace ckpt::ops
