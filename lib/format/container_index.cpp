// SPDX-License-Identifier: Apache-2.0
#include "format/container_index.hpp"

#include "format/cbor_table.hpp"
#include "format/constants.hpp"
#include "format/ends.hpp"

#include <algorithm>
#include <array>
#include <set>

namespace ckpt::format {
namespace {

[[noreturn]] void refuse_index(const std::string& why) { throw Damaged(DamageKind::altered, 0, 0, "index: " + why); }

Digest digest_at(ByteView packed, std::size_t row) {
  Digest digest;
  std::copy_n(packed.data() + row * digest.bytes.size(), digest.bytes.size(), digest.bytes.begin());
  return digest;
}

template <FixedWidth T>
void hash_number(Hasher& hasher, T value) {
  std::array<std::byte, sizeof(T)> bytes{};
  store_le(bytes.data(), value);
  hasher.update(bytes);
}

void hash_text(Hasher& hasher, std::string_view text) {
  hash_number<std::uint64_t>(hasher, text.size());
  hasher.update(text);
}

void check_frames(const ContainerIndex& index, std::uint64_t end) {
  std::uint64_t next_block = 0;
  std::uint64_t at = header_size;
  for (const FrameRecord& frame : index.frames) {
    if (frame.first_block != next_block || frame.block_count == 0 ||
        frame.block_count > index.blocks.size() - next_block) {
      refuse_index("frames that don't tile the blocks");
    }
    if (frame.place < at || frame.payload < frame.place || !lies_within(frame.payload, frame.payload_size, end)) {
      refuse_index("a frame outside the container");
    }
    if (frame.payload - frame.place > max_frame_header || frame.payload_size > max_frame_payload) {
      refuse_index("a frame of impossible size");
    }
    std::uint64_t place = frame.payload;
    for (std::uint64_t i = 0; i < frame.block_count; ++i) {
      const BlockRecord& block = index.blocks[next_block + i];
      if (block.place != place || !lies_within(place, block.stored_size, frame.payload + frame.payload_size)) {
        refuse_index("a block outside its frame");
      }
      place += block.stored_size;
    }
    if (place != frame.payload + frame.payload_size) refuse_index("a frame with bytes that belong to no block");
    next_block += frame.block_count;
    at = place;
  }
  if (next_block != index.blocks.size()) refuse_index("blocks without a frame");
}

/// Rows of zeros stand for blocks without a base.
void add_bases(const std::vector<BlockRecord>& records, TableWriter& table) {
  std::vector<std::uint8_t> depths;
  std::vector<std::uint32_t> checkpoints, ranks;
  std::vector<std::uint64_t> numbers;
  Bytes hashes;
  for (const BlockRecord& block : records) {
    const BaseRef base = block.base.value_or(BaseRef{.checkpoint = 0, .rank = 0, .block = 0, .hash = {}});
    depths.push_back(block.depth);
    checkpoints.push_back(base.checkpoint);
    ranks.push_back(base.rank);
    numbers.push_back(base.block);
    append(hashes, base.hash.bytes);
  }
  table.add("depth", depths);
  table.add("base_checkpoint", checkpoints);
  table.add("base_rank", ranks);
  table.add("base_block", numbers);
  table.add_bytes("base_hash", hashes);
}

void read_bases(const TableReader& table, std::vector<BlockRecord>& records) {
  if (!table.has("depth")) return;
  const std::size_t count = records.size();
  const auto depths = table.numbers<std::uint8_t>("depth", count);
  const auto checkpoints = table.numbers<std::uint32_t>("base_checkpoint", count);
  const auto ranks = table.numbers<std::uint32_t>("base_rank", count);
  const auto numbers = table.numbers<std::uint64_t>("base_block", count);
  const ByteView hashes = table.bytes("base_hash");
  if (hashes.size() != count * sizeof(Digest)) table.fail("base_hash", "has another number of rows");
  for (std::size_t i = 0; i < count; ++i) {
    if (depths[i] == 0) continue;
    if (depths[i] > max_chain) table.fail("depth", "has an impossible value");
    if (checkpoints[i] == own_shard && numbers[i] >= count) table.fail("base_block", "has an impossible value");
    if (checkpoints[i] == own_shard && numbers[i] == i) table.fail("base_block", "makes a block its own base");
    records[i].depth = depths[i];
    records[i].base = {
        .checkpoint = checkpoints[i], .rank = ranks[i], .block = numbers[i], .hash = digest_at(hashes, i)};
  }
}

/// Sizes and bases that a codec can't have.
void check_codecs(const TableReader& table, const std::vector<BlockRecord>& records) {
  for (const BlockRecord& block : records) {
    if (!codec::may_have(block.codec, block.base.has_value()))
      table.fail("depth", "has a value that the codec can't have");
    const bool possible = block.codec == Codec::raw         ? block.stored_size == block.raw_size
                          : block.codec == Codec::reference ? block.stored_size == 0
                                                            : block.stored_size < block.raw_size;
    if (!possible) table.fail("stored_size", "has an impossible value");
  }
}

}  // namespace

Bytes encode_index(const ContainerIndex& index) {
  std::vector<std::uint64_t> raw_sizes, stored_sizes, places;
  std::vector<std::uint8_t> codecs;
  Bytes hashes;
  bool any_base = false;
  for (const BlockRecord& block : index.blocks) {
    any_base = any_base || block.base.has_value();
    raw_sizes.push_back(block.raw_size);
    stored_sizes.push_back(block.stored_size);
    places.push_back(block.place);
    codecs.push_back(static_cast<std::uint8_t>(block.codec));
    append(hashes, block.hash.bytes);
  }
  TableWriter blocks;
  blocks.add("raw_size", raw_sizes);
  blocks.add("stored_size", stored_sizes);
  blocks.add("place", places);
  blocks.add("codec", codecs);
  blocks.add_bytes("hash", hashes);
  if (any_base) add_bases(index.blocks, blocks);

  std::vector<std::uint64_t> frame_places, payloads, payload_sizes, counts;
  for (const FrameRecord& frame : index.frames) {
    frame_places.push_back(frame.place);
    payloads.push_back(frame.payload);
    payload_sizes.push_back(frame.payload_size);
    counts.push_back(frame.block_count);
  }
  TableWriter frames;
  frames.add("place", frame_places);
  frames.add("payload", payloads);
  frames.add("payload_size", payload_sizes);
  frames.add("blocks", counts);

  TableWriter catalog;
  catalog.add<std::uint64_t>("raw_size", {index.catalog.raw_size});
  catalog.add<std::uint64_t>("stored_size", {index.catalog.stored_size});
  catalog.add<std::uint64_t>("place", {index.catalog.place});
  catalog.add<std::uint8_t>("codec", {static_cast<std::uint8_t>(index.catalog.codec)});
  catalog.add_bytes("hash", index.catalog.hash.bytes);

  TableWriter shard;
  shard.add_bytes("root", index.root.bytes);
  return dump_cbor({{"catalog", std::move(catalog).take()},
                    {"frames", std::move(frames).take()},
                    {"blocks", std::move(blocks).take()},
                    {"shard", std::move(shard).take()}});
}

ContainerIndex decode_index(ByteView data, std::uint64_t end) {
  const Json document = parse_cbor(data, "index");
  ContainerIndex index;

  const TableReader blocks(document, "blocks");
  const auto raw_sizes = blocks.numbers<std::uint64_t>("raw_size");
  const std::size_t count = raw_sizes.size();
  const auto stored_sizes = blocks.numbers<std::uint64_t>("stored_size", count);
  const auto places = blocks.numbers<std::uint64_t>("place", count);
  const auto codecs = blocks.numbers<std::uint8_t>("codec", count);
  const ByteView hashes = blocks.bytes("hash");
  if (hashes.size() != count * sizeof(Digest)) blocks.fail("hash", "has another number of rows");
  index.blocks.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (codecs[i] >= codec_count) blocks.fail("codec", "has an unknown value");
    if (raw_sizes[i] == 0 || raw_sizes[i] > block_size) blocks.fail("raw_size", "has an impossible value");
    index.blocks[i] = {.raw_size = raw_sizes[i],
                       .stored_size = stored_sizes[i],
                       .place = places[i],
                       .codec = static_cast<Codec>(codecs[i]),
                       .depth = 0,
                       .hash = digest_at(hashes, i),
                       .base = {}};
  }
  read_bases(blocks, index.blocks);
  check_codecs(blocks, index.blocks);

  const TableReader frames(document, "frames");
  const auto frame_places = frames.numbers<std::uint64_t>("place");
  const auto payloads = frames.numbers<std::uint64_t>("payload", frame_places.size());
  const auto payload_sizes = frames.numbers<std::uint64_t>("payload_size", frame_places.size());
  const auto counts = frames.numbers<std::uint64_t>("blocks", frame_places.size());
  std::uint64_t next = 0;
  for (std::size_t i = 0; i < frame_places.size(); ++i) {
    index.frames.push_back({.place = frame_places[i],
                            .payload = payloads[i],
                            .payload_size = payload_sizes[i],
                            .first_block = next,
                            .block_count = counts[i]});
    if (counts[i] > count) refuse_index("frames that don't tile the blocks");
    next += counts[i];
  }
  check_frames(index, end);

  const TableReader catalog(document, "catalog");
  const auto codec = catalog.numbers<std::uint8_t>("codec", 1)[0];
  if (codec > static_cast<std::uint8_t>(Codec::zstd)) catalog.fail("codec", "has an unknown value");
  index.catalog = {.raw_size = catalog.numbers<std::uint64_t>("raw_size", 1)[0],
                   .stored_size = catalog.numbers<std::uint64_t>("stored_size", 1)[0],
                   .place = catalog.numbers<std::uint64_t>("place", 1)[0],
                   .codec = static_cast<Codec>(codec),
                   .hash = {}};
  if (catalog.bytes("hash").size() != sizeof(Digest)) catalog.fail("hash", "has another size");
  index.catalog.hash = digest_at(catalog.bytes("hash"), 0);
  if (!lies_within(index.catalog.place, index.catalog.stored_size, end) || index.catalog.raw_size > max_catalog_size) {
    refuse_index("a catalog outside the container");
  }
  const TableReader shard(document, "shard");
  if (shard.bytes("root").size() != sizeof(Digest)) shard.fail("root", "has another size");
  index.root = digest_at(shard.bytes("root"), 0);
  return index;
}

std::vector<BaseCheckpoint> used_bases(const ContainerIndex& index, const std::vector<BaseCheckpoint>& bases) {
  std::set<std::uint32_t> rows;
  for (const BlockRecord& block : index.blocks) {
    if (block.base && block.base->checkpoint != own_shard) rows.insert(block.base->checkpoint);
  }
  std::vector<BaseCheckpoint> used;
  for (const std::uint32_t row : rows) {
    if (row >= bases.size()) refuse_index("a base that the catalog lacks");
    used.push_back(bases[row]);
  }
  return used;
}

Digest shard_root(const Catalog& catalog, const std::vector<Digest>& block_hashes) {
  Hasher hasher;
  for (const FileEntry& file : catalog.files) {
    hash_number(hasher, static_cast<std::uint8_t>(file.type));
    hash_number(hasher, file.mode);
    hash_text(hasher, file.path);
    hash_text(hasher, file.target);
    hash_number(hasher, file.size);
    hash_number(hasher, file.block_count);
    for (std::uint64_t i = file.first_block; i < file.first_block + file.block_count; ++i) {
      hash_number(hasher, catalog.block_sizes[i]);
      hasher.update(block_hashes[i].bytes);
    }
  }
  return hasher.digest();
}

Digest checkpoint_id(const std::vector<Digest>& roots_by_rank) {
  Hasher hasher;
  std::uint32_t rank = 0;
  for (const Digest& root : roots_by_rank) {
    hash_number(hasher, rank++);
    hasher.update(root.bytes);
  }
  return hasher.digest();
}

}  // namespace ckpt::format
