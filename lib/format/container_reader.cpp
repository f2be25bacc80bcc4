// SPDX-License-Identifier: Apache-2.0
#include "format/container_reader.hpp"

#include "codec/zstd_frame.hpp"
#include "format/constants.hpp"
#include "format/damaged.hpp"

#include <algorithm>
#include <utility>

namespace ckpt::format {
namespace {

/// Puts the file's name and a byte range on damage that was found in a section of it.
template <class Decode>
auto in_section(const std::string& name, const Section& section, Decode decode) {
  try {
    return decode();
  } catch (const Damaged& damage) {
    throw Damaged(damage.kind(), section.offset, section.offset + section.size, "'" + name + "': " + damage.what());
  }
}

Bytes read_exactly(const os::AdaptiveReader& file, std::uint64_t offset, std::uint64_t size, const char* what) {
  os::AlignedBuffer buffer;
  const ByteView got = file.read(offset, size, buffer);
  if (got.size() < size) {
    throw Damaged(DamageKind::truncated, offset + got.size(), offset + size,
                  "'" + file.path() + "' ends inside its " + what);
  }
  return {got.begin(), got.end()};
}

Section section_of(const CatalogRecord& record) {
  return {.offset = record.place, .size = record.stored_size, .hash = record.hash};
}

[[noreturn]] void catalog_altered(const std::string& path, const Section& section, const char* why) {
  throw Damaged(DamageKind::altered, section.offset, section.offset + section.size,
                "'" + path + "': the catalog " + why);
}

ContainerIndex read_index(const os::AdaptiveReader& file, const Footer& footer) {
  const Bytes packed = read_exactly(file, footer.index.offset, footer.index.size, "index");
  if (xxh3_128(ByteView(packed)) != footer.index.hash) {
    throw Damaged(DamageKind::altered, footer.index.offset, footer.index.offset + footer.index.size,
                  "'" + file.path() + "': the index fails its checksum");
  }
  return in_section(file.path(), footer.index, [&] { return decode_index(packed, footer.index.offset); });
}

/// The catalog's bytes, unpacked and checked.
Bytes read_catalog(const os::AdaptiveReader& file, const CatalogRecord& record) {
  const Section section = section_of(record);
  Bytes raw = read_exactly(file, record.place, record.stored_size, "catalog");
  if (record.codec == Codec::zstd) {
    // A zstd frame can't hold more than this many times its own size; checked before memory is taken.
    constexpr std::uint64_t most = 1U << 15U;
    if (record.raw_size / most > record.stored_size) catalog_altered(file.path(), section, "has an impossible size");
    Bytes unpacked(record.raw_size);
    if (!codec::zstd_decompress(raw, unpacked)) catalog_altered(file.path(), section, "can't be decompressed");
    raw = std::move(unpacked);
  }
  if (raw.size() != record.raw_size || xxh3_128(ByteView(raw)) != record.hash) {
    catalog_altered(file.path(), section, "fails its checksum");
  }
  return raw;
}

}  // namespace

Footer read_footer(const os::AdaptiveReader& file, Digest* digest) {
  os::AlignedBuffer buffer;
  const std::uint64_t tail = std::min(footer_size, file.size());
  const ByteView end = file.read(file.size() - tail, tail, buffer);
  const Footer footer = decode_footer(end, file.size(), file.path());
  *digest = footer_digest(end);
  return footer;
}

std::vector<std::uint64_t> read_sums(const os::AdaptiveReader& file, const Footer& footer) {
  const Bytes packed = read_exactly(file, footer.sums.offset, footer.sums.size, "sums");
  if (xxh3_128(ByteView(packed)) != footer.sums.hash) {
    throw Damaged(DamageKind::altered, footer.sums.offset, footer.sums.offset + footer.sums.size,
                  "'" + file.path() + "': the sums fail their checksum");
  }
  std::vector<std::uint64_t> sums(packed.size() / sizeof(std::uint64_t));
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = load_le<std::uint64_t>(packed.data() + i * 8);
  return sums;
}

ContainerSummary read_container_summary(const std::string& path) {
  const os::AdaptiveReader file(path);
  os::AlignedBuffer buffer;
  check_header(file.read(0, std::min(header_size, file.size()), buffer), path);
  ContainerSummary summary;
  summary.footer = read_footer(file, &summary.digest);
  const ContainerIndex index = read_index(file, summary.footer);
  summary.root = index.root;
  const Bytes raw = read_catalog(file, index.catalog);
  summary.catalog = in_section(path, section_of(index.catalog), [&] { return decode_catalog_summary(raw); });
  summary.bases = in_section(path, summary.footer.index, [&] { return used_bases(index, summary.catalog.bases); });
  return summary;
}

ContainerReader::ContainerReader(const std::string& file_path, std::shared_ptr<const BaseContainers> bases,
                                 os::CacheUse use)
    : file_(file_path, use), bases_(std::move(bases)) {
  os::AlignedBuffer buffer;
  check_header(file_.read(0, std::min(header_size, file_.size()), buffer), path());
  footer_ = read_footer(file_, &digest_);

  index_ = read_index(file_, footer_);
  const Bytes raw = read_catalog(file_, index_.catalog);
  const Section section = section_of(index_.catalog);
  catalog_ = in_section(path(), section, [&] { return decode_catalog(raw); });

  const auto altered = [&](const char* why) { catalog_altered(path(), section, why); };
  if (catalog_.block_sizes.size() != index_.blocks.size()) altered("and the index count different blocks");
  std::vector<Digest> hashes;
  hashes.reserve(index_.blocks.size());
  for (std::size_t i = 0; i < index_.blocks.size(); ++i) {
    if (catalog_.block_sizes[i] != index_.blocks[i].raw_size) altered("and the index cut blocks differently");
    hashes.push_back(index_.blocks[i].hash);
  }
  if (shard_root(catalog_, hashes) != index_.root) altered("and the index don't lead to the shard's root");
}

std::shared_ptr<const ContainerReader> ContainerReader::base_container(const BaseRef& base) const {
  if (base.checkpoint >= catalog_.bases.size()) {
    throw Damaged(DamageKind::altered, 0, 0, "'" + path() + "' refers to a base that its catalog doesn't list");
  }
  const BaseCheckpoint& checkpoint = catalog_.bases[base.checkpoint];
  if (bases_ == nullptr) {
    throw Damaged(DamageKind::missing, 0, 0,
                  "'" + path() + "' needs the checkpoint of step " + std::to_string(checkpoint.step) +
                      ", and was opened outside its store");
  }
  return bases_->open(checkpoint, base.rank);
}

std::optional<Bytes> ContainerReader::substitute(std::uint64_t block) const {
  if (bases_ == nullptr) return std::nullopt;
  return bases_->substitute(*this, block);
}

const FrameRecord& ContainerReader::frame_of(std::uint64_t block) const {
  const auto after = std::upper_bound(index_.frames.begin(), index_.frames.end(), block,
                                      [](std::uint64_t b, const FrameRecord& f) { return b < f.first_block; });
  return *std::prev(after);
}

}  // namespace ckpt::format
