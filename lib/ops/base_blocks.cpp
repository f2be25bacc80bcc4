// SPDX-License-Identifier: Apache-2.0
#include "ops/base_blocks.hpp"

#include "ops/open_shard.hpp"
#include "ops/stored_bases.hpp"

#include <algorithm>
#include <utility>

namespace ckpt::ops {
namespace {

/// Other ranks' shards are opened if more than this share of the bytes has nothing like it in the own one.
constexpr double most_unpaired = 0.1;

}  // namespace

BaseBlocks::BaseBlocks(const store::Checkpoint& base, std::uint32_t rank, const format::Catalog& catalog,
                       const std::vector<BlockPiece>& pieces, std::vector<format::BaseCheckpoint> avoid)
    : bases_(bases_for(base)), avoid_(std::move(avoid)), checkpoints_{base.manifest.identity()} {
  const std::uint32_t world_size = base.manifest.world_size;
  const std::uint32_t own = std::min(rank, world_size - 1);
  add_shard(base, own);
  if (world_size == 1 || !lacks_tensors(catalog, pieces)) return;
  for (std::uint32_t r = 0; r < world_size; ++r) {
    if (r != own) add_shard(base, r);
  }
}

void BaseBlocks::add_shard(const store::Checkpoint& base, std::uint32_t rank) {
  Shard shard{.rank = rank, .reader = open_shard(base, rank, bases_), .rows = {}};
  for (const format::BaseCheckpoint& used : shard.reader->catalog().bases)
    shard.rows.push_back(format::row_of(checkpoints_, used));
  const auto number = static_cast<std::uint32_t>(shards_.size());
  const std::vector<BlockPiece> pieces = describe_pieces(shard.reader->catalog());
  const auto& blocks = shard.reader->index().blocks;
  for (std::uint64_t b = 0; b < blocks.size(); ++b) {
    const Place place{.shard = number, .block = b};
    for (const Digest& name : pieces[b].names) by_name_.try_emplace(name, place);
    by_hash_.try_emplace(blocks[b].hash, place);
  }
  shards_.push_back(std::move(shard));
}

bool BaseBlocks::lacks_tensors(const format::Catalog& catalog, const std::vector<BlockPiece>& pieces) const {
  std::uint64_t unpaired = 0;
  for (std::size_t b = 0; b < pieces.size(); ++b) {
    if (!pieces[b].untyped && !like(pieces[b])) unpaired += catalog.block_sizes[b];
  }
  return static_cast<double>(unpaired) > most_unpaired * static_cast<double>(catalog.raw_bytes());
}

std::optional<BaseBlock> BaseBlocks::like(const BlockPiece& piece) const {
  for (const Digest& name : piece.names) {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) continue;
    const Shard& shard = shards_[found->second.shard];
    const format::BlockRecord& record = shard.reader->index().blocks[found->second.block];
    return BaseBlock{.container = shard.reader,
                     .block = found->second.block,
                     .ref = {.checkpoint = 0, .rank = shard.rank, .block = found->second.block, .hash = record.hash},
                     .depth = record.depth};
  }
  return std::nullopt;
}

std::optional<BaseBlock> BaseBlocks::same(const Digest& hash, std::uint64_t size) const {
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end()) return std::nullopt;
  const Shard& shard = shards_[found->second.shard];
  const format::BlockRecord& record = shard.reader->index().blocks[found->second.block];
  if (record.raw_size != size) return std::nullopt;
  BaseBlock base{.container = shard.reader,
                 .block = found->second.block,
                 .ref = {.checkpoint = 0, .rank = shard.rank, .block = found->second.block, .hash = hash},
                 .depth = record.depth};
  if (record.codec == codec::Codec::reference) {
    const std::uint32_t row = record.base->checkpoint == format::own_shard ? 0 : shard.rows.at(record.base->checkpoint);
    if (contains(avoid_, checkpoints_[row])) return base;
    // What it stands for has the same bytes, and one link less.
    base.ref = *record.base;
    base.ref.checkpoint = row;
    base.depth = static_cast<std::uint8_t>(record.depth - 1);
  }
  return base;
}

}  // namespace ckpt::ops
