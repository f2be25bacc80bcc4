// SPDX-License-Identifier: Apache-2.0
// Copies in 16 bits of float32 tensors in the same shard, as mixed precision keeps them: exactly the rounding of their
// master, they cost nothing. Which tensor is whose copy is told from a few values, never from names.
#pragma once

#include "codec/typed_block.hpp"
#include "format/catalog.hpp"
#include "ops/shard_bytes.hpp"

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

namespace ckpt::ops {

/// Where the float32 values of a block are: in a file of the save, and in which blocks of the shard.
struct MasterBlock {
  std::size_t file = 0;      ///< in the catalog
  std::uint64_t offset = 0;  ///< in the file
  std::uint64_t block = 0;   ///< the first one of the shard
  codec::Rounding rounding = codec::Rounding::none;
};

/// Thread-safe after construction.
class MasterBlocks {
 public:
  /// Reads a few values of each tensor that may be one or the other.
  MasterBlocks(const ShardBytes& bytes, const format::Catalog& catalog);

  [[nodiscard]] const MasterBlock* find(std::uint64_t block) const;
  /// Whether blocks of the shard may be decoded against this one.
  [[nodiscard]] bool is_master(std::uint64_t block) const { return is_master_.at(block); }

 private:
  std::unordered_map<std::uint64_t, MasterBlock> by_block_;
  std::vector<bool> is_master_;
};

}  // namespace ckpt::ops
