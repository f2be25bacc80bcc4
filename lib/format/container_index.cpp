// SPDX-License-Identifier: Apache-2.0
#include "format/container_index.hpp"

#include "format/cbor_table.hpp"
#include "format/constants.hpp"
#include "format/ends.hpp"

#include <algorithm>
#include <array>

namespace ckpt::format {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw Damaged(DamageKind::altered, 0, 0, "index: " + why); }

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
      refuse("frames that don't tile the blocks");
    }
    if (frame.place < at || frame.payload < frame.place || !lies_within(frame.payload, frame.payload_size, end)) {
      refuse("a frame outside the container");
    }
    if (frame.payload - frame.place > max_frame_header || frame.payload_size > max_frame_payload) {
      refuse("a frame of impossible size");
    }
    std::uint64_t place = frame.payload;
    for (std::uint64_t i = 0; i < frame.block_count; ++i) {
      const BlockRecord& block = index.blocks[next_block + i];
      if (block.place != place || !lies_within(place, block.stored_size, frame.payload + frame.payload_size)) {
        refuse("a block outside its frame");
      }
      place += block.stored_size;
    }
    if (place != frame.payload + frame.payload_size) refuse("a frame with bytes that belong to no block");
    next_block += frame.block_count;
    at = place;
  }
  if (next_block != index.blocks.size()) refuse("blocks without a frame");
}

}  // namespace

Bytes encode_index(const ContainerIndex& index) {
  std::vector<std::uint64_t> raw_sizes, stored_sizes, places;
  std::vector<std::uint8_t> codecs;
  Bytes hashes;
  for (const BlockRecord& block : index.blocks) {
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
                       .hash = digest_at(hashes, i)};
    const bool raw = index.blocks[i].codec == Codec::raw;
    if (raw ? stored_sizes[i] != raw_sizes[i] : stored_sizes[i] >= raw_sizes[i]) {
      blocks.fail("stored_size", "has an impossible value");
    }
  }

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
    if (counts[i] > count) refuse("frames that don't tile the blocks");
    next += counts[i];
  }
  check_frames(index, end);

  const TableReader catalog(document, "catalog");
  const auto codec = catalog.numbers<std::uint8_t>("codec", 1)[0];
  if (codec >= codec_count) catalog.fail("codec", "has an unknown value");
  index.catalog = {.raw_size = catalog.numbers<std::uint64_t>("raw_size", 1)[0],
                   .stored_size = catalog.numbers<std::uint64_t>("stored_size", 1)[0],
                   .place = catalog.numbers<std::uint64_t>("place", 1)[0],
                   .codec = static_cast<Codec>(codec),
                   .hash = {}};
  if (catalog.bytes("hash").size() != sizeof(Digest)) catalog.fail("hash", "has another size");
  index.catalog.hash = digest_at(catalog.bytes("hash"), 0);
  if (!lies_within(index.catalog.place, index.catalog.stored_size, end) || index.catalog.raw_size > max_catalog_size) {
    refuse("a catalog outside the container");
  }
  const TableReader shard(document, "shard");
  if (shard.bytes("root").size() != sizeof(Digest)) shard.fail("root", "has another size");
  index.root = digest_at(shard.bytes("root"), 0);
  return index;
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
