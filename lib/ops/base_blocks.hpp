// SPDX-License-Identifier: Apache-2.0
// The blocks of a committed checkpoint that those of a new shard can be stored against.
#pragma once

#include "format/container_reader.hpp"
#include "ops/block_pieces.hpp"
#include "store/store.hpp"

#include <ckpt/monitor.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

namespace ckpt::ops {

/// A block that may become a base: how it's referred to, and where it's read.
struct BaseBlock {
  std::shared_ptr<const format::ContainerReader> container;
  std::uint64_t block = 0;  ///< in the container
  format::BaseRef ref;
  std::uint8_t depth = 0;  ///< of the base's own chain
};

/// Thread-safe after construction.
class BaseBlocks {
 public:
  /// Opens the base's shard of `rank`, and the others where that one hasn't got what is looked for. `pieces` are the
  /// new shard's blocks; nothing is to be stored against the checkpoints of `avoid`. Throws Damaged if the base can't
  /// be read.
  BaseBlocks(const store::Checkpoint& base, std::uint32_t rank, const format::Catalog& catalog,
             const std::vector<BlockPiece>& pieces, std::vector<format::BaseCheckpoint> avoid = {});

  /// What the new catalog lists: the base, and the checkpoints that its blocks refer to.
  [[nodiscard]] const std::vector<format::BaseCheckpoint>& checkpoints() const { return checkpoints_; }

  /// A block of this size that holds the same part of the same tensor or file.
  [[nodiscard]] std::optional<BaseBlock> like(const BlockPiece& piece) const;
  /// A block with these bytes, wherever it is. A reference is followed to what it stands for, if that may be a base.
  [[nodiscard]] std::optional<BaseBlock> same(const Digest& hash, std::uint64_t size) const;

 private:
  struct Place {
    std::uint32_t shard = 0;  ///< in shards_
    std::uint64_t block = 0;
  };
  void add_shard(const store::Checkpoint& base, std::uint32_t rank);
  [[nodiscard]] bool lacks_tensors(const format::Catalog& catalog, const std::vector<BlockPiece>& pieces) const;

  struct Shard {
    std::uint32_t rank = 0;
    std::shared_ptr<const format::ContainerReader> reader;
    std::vector<std::uint32_t> rows;  ///< of its catalog's bases, in checkpoints_
  };
  std::shared_ptr<const format::BaseContainers> bases_;
  std::vector<format::BaseCheckpoint> avoid_;
  std::vector<format::BaseCheckpoint> checkpoints_;
  std::vector<Shard> shards_;
  std::unordered_map<Digest, Place, DigestHash> by_name_;
  std::unordered_map<Digest, Place, DigestHash> by_hash_;
};

}  // namespace ckpt::ops
