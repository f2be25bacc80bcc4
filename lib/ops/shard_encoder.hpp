// SPDX-License-Identifier: Apache-2.0
// Gives each block of a new shard its smallest form: the same bytes elsewhere, a difference from what was there before,
// a rounding of what's beside it, or packed on its own.
#pragma once

#include "codec/block_encoder.hpp"
#include "core/pipeline.hpp"
#include "format/base.hpp"
#include "ops/base_blocks.hpp"
#include "ops/block_pieces.hpp"
#include "ops/master_blocks.hpp"
#include "ops/shard_bytes.hpp"

#include <ckpt/monitor.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace ckpt::ops {

/// A block's form; its stored bytes are a part of the buffer that was given.
struct EncodedBlock {
  codec::Codec codec = codec::Codec::raw;
  std::size_t begin = 0;
  std::size_t size = 0;
  std::uint8_t depth = 0;
  std::optional<format::BaseRef> base = {};
};

struct EncodeSettings {
  codec::Effort effort = codec::Effort::fast;
  std::optional<int> level = {};  ///< of zstd, for what is packed as bytes
  bool check = true;
  std::uint8_t max_depth = format::max_chain;
  std::vector<std::uint8_t> depth_limits = {};  ///< for each block; empty: max_depth for all
  /// The base's chains aren't what they'll be: its blocks are taken to be this deep, and what they stand for not at
  /// all.
  std::optional<std::uint8_t> base_depth = {};
};

/// Thread-safe: each call borrows its buffers.
class ShardEncoder {
 public:
  /// `bytes` and `catalog` outlive this object. `base` may be null.
  ShardEncoder(const EncodeSettings& settings, const ShardBytes& bytes, const format::Catalog& catalog,
               std::vector<BlockPiece> pieces, std::unique_ptr<BaseBlocks> base, Monitor& monitor);

  /// The longest chain that a block may have: one that others are derived from leaves them a link.
  [[nodiscard]] std::uint8_t deepest(std::uint64_t block) const;

  /// Appends the stored bytes to `out`, unless they're the raw ones or none.
  [[nodiscard]] EncodedBlock encode(std::uint64_t block, ByteView raw, const Digest& hash, Bytes& out);

 private:
  struct Tools {
    explicit Tools(const EncodeSettings& settings) : encoder(settings.effort, settings.check, settings.level) {}
    codec::BlockEncoder encoder;
    format::BlockDecoder base;
    os::AlignedBuffer master;
  };
  [[nodiscard]] std::optional<EncodedBlock> refer(ByteView raw, const Digest& hash, std::uint8_t deepest, Tools& tools);
  [[nodiscard]] ByteView read_base(const BaseBlock& base, Tools& tools);
  [[nodiscard]] bool may_derive(std::uint64_t block) const;

  EncodeSettings settings_;
  const ShardBytes& bytes_;
  const format::Catalog& catalog_;
  std::vector<BlockPiece> pieces_;
  std::unique_ptr<BaseBlocks> base_;
  MasterBlocks masters_;
  Monitor& monitor_;
  std::atomic<bool> base_is_damaged_ = false;
  Pool<std::unique_ptr<Tools>> tools_;
};

}  // namespace ckpt::ops
