// SPDX-License-Identifier: Apache-2.0
#include "ops/shard_encoder.hpp"

#include "format/damaged.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ckpt::ops {
namespace {

/// Smaller blocks gain less than a reference or a head costs.
constexpr std::size_t least_encoded = 512;

}  // namespace

ShardEncoder::ShardEncoder(const EncodeSettings& settings, const ShardBytes& bytes, const format::Catalog& catalog,
                           std::vector<BlockPiece> pieces, std::unique_ptr<BaseBlocks> base, Monitor& monitor)
    : settings_(settings),
      bytes_(bytes),
      catalog_(catalog),
      pieces_(std::move(pieces)),
      base_(std::move(base)),
      masters_(bytes, catalog),
      monitor_(monitor) {}

ByteView ShardEncoder::read_base(const BaseBlock& base, Tools& tools) {
  if (base_is_damaged_) return {};
  try {
    return tools.base.read(*base.container, base.block);
  } catch (const format::Damaged& damage) {
    // A new checkpoint must not hang on a damaged one; and it needn't fail with it.
    if (!base_is_damaged_.exchange(true)) {
      monitor_.warning(std::string("stored without a base, which is damaged: ") + damage.what());
    }
    return {};
  }
}

std::optional<EncodedBlock> ShardEncoder::refer(ByteView raw, const Digest& hash, std::uint8_t deepest, Tools& tools) {
  if (base_ == nullptr || base_is_damaged_) return std::nullopt;
  const auto same = base_->same(hash, raw.size());
  if (!same || (settings_.base_depth ? 0 : same->depth) >= deepest) return std::nullopt;
  if (settings_.check) {
    const ByteView there = read_base(*same, tools);
    if (there.size() != raw.size() || std::memcmp(there.data(), raw.data(), raw.size()) != 0) return std::nullopt;
  }
  return EncodedBlock{
      .codec = codec::Codec::reference, .depth = static_cast<std::uint8_t>(same->depth + 1), .base = same->ref};
}

std::uint8_t ShardEncoder::deepest(std::uint64_t block) const {
  std::uint8_t depth = settings_.max_depth;
  if (!settings_.depth_limits.empty()) depth = std::min(depth, settings_.depth_limits[block]);
  if (!masters_.is_master(block)) return depth;
  return std::min(depth, static_cast<std::uint8_t>(std::max<int>(settings_.max_depth, 1) - 1));
}

bool ShardEncoder::may_derive(std::uint64_t block) const {
  if (settings_.max_depth == 0) return false;
  return settings_.depth_limits.empty() || settings_.depth_limits[block] == format::max_chain;
}

EncodedBlock ShardEncoder::encode(std::uint64_t block, ByteView raw, const Digest& hash, Bytes& out) {
  if (raw.size() < least_encoded) return {};
  auto lease = tools_.take();
  if (*lease == nullptr) {
    *lease = std::make_unique<Tools>(settings_);
  }
  Tools& tools = **lease;
  if (const auto reference = refer(raw, hash, deepest(block), tools)) return *reference;

  const BlockPiece& piece = pieces_[block];
  codec::BlockInput input{.raw = raw, .element = piece.element, .lead = piece.lead, .untyped = piece.untyped};
  std::optional<BaseBlock> base;
  if (base_ != nullptr) base = base_->like(piece);
  if (base && settings_.base_depth.value_or(base->depth) < deepest(block)) input.base = read_base(*base, tools);
  // A derived block is said to have the deepest chain that there may be, since its master's isn't known yet.
  const MasterBlock* const master = may_derive(block) ? masters_.find(block) : nullptr;
  if (master != nullptr) {
    if (const auto bytes = bytes_.read_if_held(master->file, master->offset, 2 * raw.size(), tools.master)) {
      input.master = *bytes;
      input.rounding = master->rounding;
    }
  }

  EncodedBlock encoded{.begin = out.size()};
  const codec::BlockForm form = tools.encoder.encode(input, out);
  encoded.codec = form.codec;
  encoded.size = out.size() - encoded.begin;
  if (form.codec == codec::Codec::derived) {
    encoded.depth = format::max_chain;
    encoded.base = {.checkpoint = format::own_shard,
                    .rank = catalog_.shard.rank,
                    .block = master->block,
                    .hash = xxh3_128(input.master.first(catalog_.block_sizes[master->block]))};
  } else if (form.has_base) {
    encoded.depth = static_cast<std::uint8_t>(base->depth + 1);
    encoded.base = base->ref;
  }
  return encoded;
}

}  // namespace ckpt::ops
