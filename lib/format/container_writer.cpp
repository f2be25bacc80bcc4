// SPDX-License-Identifier: Apache-2.0
#include "format/container_writer.hpp"

#include "codec/zstd_frame.hpp"
#include "format/constants.hpp"
#include "format/ends.hpp"

#include <stdexcept>
#include <utility>

namespace ckpt::format {
namespace {

/// Blocks of this size get a frame of their own; smaller ones share one, up to block_size.
constexpr std::uint64_t alone_from = 1U << 20U;
constexpr int catalog_level = 1;
/// So that the header stays below its limit, bases included.
constexpr std::size_t most_entries = 12288;
static_assert(frame_fixed_size + most_entries * frame_entry_size_with_base + payload_alignment <= max_frame_header);
static_assert(most_entries <= max_frame_entries);

}  // namespace

ContainerWriter::ContainerWriter(os::Fd file, std::string path, const Catalog& catalog, std::uint64_t incompat)
    : writer_(std::move(file), std::move(path),
              [this](std::span<const std::byte> full) { sums_.push_back(xxh3_64(full)); }),
      catalog_(catalog),
      incompat_(incompat) {
  writer_.append(encode_header({.compat = 0, .ro_compat = 0, .incompat = incompat}));
  const Bytes raw = encode_catalog(catalog_);
  const Bytes packed = codec::zstd_compress(raw, catalog_level);
  const bool smaller = packed.size() < raw.size();
  const Bytes& stored = smaller ? packed : raw;
  index_.catalog = {.raw_size = raw.size(),
                    .stored_size = stored.size(),
                    .place = 0,
                    .codec = smaller ? Codec::zstd : Codec::raw,
                    .hash = xxh3_128(ByteView(raw))};
  write_frame(FrameKind::catalog,
              {{.raw_size = raw.size(),
                .stored_size = stored.size(),
                .codec = index_.catalog.codec,
                .depth = 0,
                .hash = index_.catalog.hash,
                .base = {}}},
              stored);
  index_.catalog.place = writer_.position() - stored.size();
}

void ContainerWriter::align(std::uint64_t alignment) {
  writer_.append_zeros(align_up(writer_.position(), alignment) - writer_.position());
}

void ContainerWriter::write_frame(FrameKind kind, const std::vector<FrameEntry>& entries, ByteView payload) {
  align(section_alignment);
  const std::uint64_t place = writer_.position();
  const std::uint64_t first_block = kind == FrameKind::blocks ? index_.blocks.size() : 0;
  writer_.append(encode_frame_header(
      {.kind = kind, .header_size = 0, .payload_size = payload.size(), .first_block = first_block, .entries = entries},
      place));
  if (kind == FrameKind::blocks) {
    index_.frames.push_back({.place = place,
                             .payload = writer_.position(),
                             .payload_size = payload.size(),
                             .first_block = first_block,
                             .block_count = entries.size()});
    std::uint64_t at = writer_.position();
    for (const FrameEntry& entry : entries) {
      index_.blocks.push_back({.raw_size = entry.raw_size,
                               .stored_size = entry.stored_size,
                               .place = at,
                               .codec = entry.codec,
                               .depth = entry.depth,
                               .hash = entry.hash,
                               .base = entry.base});
      at += entry.stored_size;
    }
  }
  writer_.append(payload);
}

void ContainerWriter::flush_run() {
  if (run_entries_.empty()) return;
  write_frame(FrameKind::blocks, std::exchange(run_entries_, {}), run_);
  run_.clear();
}

void ContainerWriter::add(const StoredBlock& block) {
  const std::size_t number = index_.blocks.size() + run_entries_.size();
  const ByteView stored = block.stored;
  const FrameEntry entry{.raw_size = catalog_.block_sizes.at(number),
                         .stored_size = stored.size(),
                         .codec = block.codec,
                         .depth = block.depth,
                         .hash = block.hash,
                         .base = block.base};
  used_ |= (block.codec == Codec::typed ? incompat_typed : 0) | (block.base ? incompat_bases : 0);
  if ((used_ & ~incompat_) != 0) throw std::logic_error("a block needs a flag that the header doesn't have");
  if (stored.size() >= alone_from) {
    flush_run();
    write_frame(FrameKind::blocks, {entry}, stored);
    return;
  }
  if (run_.size() + stored.size() > block_size || run_entries_.size() == most_entries) flush_run();
  run_entries_.push_back(entry);
  append(run_, stored);
}

ContainerWriter::Finished ContainerWriter::finish() {
  flush_run();
  if (index_.blocks.size() != catalog_.block_sizes.size()) throw std::logic_error("a block was never added");
  std::vector<Digest> hashes;
  hashes.reserve(index_.blocks.size());
  for (const BlockRecord& block : index_.blocks) hashes.push_back(block.hash);
  index_.root = shard_root(catalog_, hashes);

  align(section_alignment);
  Footer footer;
  const Bytes index = encode_index(index_);
  footer.index = {.offset = writer_.position(), .size = index.size(), .hash = xxh3_128(ByteView(index))};
  writer_.append(index);
  align(section_alignment);

  if (!writer_.partial_granule().empty()) sums_.push_back(xxh3_64(writer_.partial_granule()));
  const std::vector<std::uint64_t> sums = sums_;  // what comes now isn't under them
  const ByteView sums_bytes = std::as_bytes(std::span(sums));
  footer.sums = {.offset = writer_.position(), .size = sums_bytes.size(), .hash = xxh3_128(sums_bytes)};
  writer_.append(sums_bytes);
  footer.file_size = writer_.position() + footer_size;
  footer.major = major_version;
  footer.minor = minor_version;
  footer.flags.incompat = used_;
  const Bytes end = encode_footer(footer);
  writer_.append(end);
  return {.file = writer_.finish(),
          .size = footer.file_size,
          .root = index_.root,
          .digest = footer_digest(end),
          .index = std::move(index_)};
}

}  // namespace ckpt::format
