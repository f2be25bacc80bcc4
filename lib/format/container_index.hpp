// SPDX-License-Identifier: Apache-2.0
// The index of a container: where each frame and each block is, and what each block must hash to.
#pragma once

#include "codec/codec_id.hpp"
#include "core/bytes.hpp"
#include "core/digest.hpp"
#include "format/base.hpp"
#include "format/catalog.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace ckpt::format {

struct BlockRecord {
  std::uint64_t raw_size = 0;
  std::uint64_t stored_size = 0;
  std::uint64_t place = 0;  ///< of the stored bytes, in the container
  Codec codec = Codec::raw;
  std::uint8_t depth = 0;  ///< of the chain of bases: 0 without a base
  Digest hash;             ///< of the raw bytes
  std::optional<BaseRef> base;
};

/// The catalog's own frame.
struct CatalogRecord {
  std::uint64_t raw_size = 0;
  std::uint64_t stored_size = 0;
  std::uint64_t place = 0;
  Codec codec = Codec::raw;
  Digest hash;
};

/// A frame of blocks.
struct FrameRecord {
  std::uint64_t place = 0;  ///< of its header
  std::uint64_t payload = 0;
  std::uint64_t payload_size = 0;
  std::uint64_t first_block = 0;
  std::uint64_t block_count = 0;
};

struct ContainerIndex {
  CatalogRecord catalog;
  std::vector<FrameRecord> frames;
  std::vector<BlockRecord> blocks;
  Digest root;  ///< of the shard: see shard_root()
};

[[nodiscard]] Bytes encode_index(const ContainerIndex& index);
/// Checks that frames tile the blocks and that everything lies in [header_size, end). Throws Damaged.
[[nodiscard]] ContainerIndex decode_index(ByteView data, std::uint64_t end);

/// Those of a catalog's `bases` that blocks really refer to. Throws Damaged if one isn't in the list.
[[nodiscard]] std::vector<BaseCheckpoint> used_bases(const ContainerIndex& index,
                                                     const std::vector<BaseCheckpoint>& bases);

/// The Merkle root of one shard: XXH3-128 over its files, sorted by path: type, mode, path, target, size, and length
/// and raw hash of every block. No time, no owner, no metadata, no encoding.
[[nodiscard]] Digest shard_root(const Catalog& catalog, const std::vector<Digest>& block_hashes);

/// The id of a checkpoint: XXH3-128 over (rank, root) of its shards, in order of rank.
[[nodiscard]] Digest checkpoint_id(const std::vector<Digest>& roots_by_rank);

}  // namespace ckpt::format
