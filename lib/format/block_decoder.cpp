// SPDX-License-Identifier: Apache-2.0
#include "format/block_decoder.hpp"

#include "codec/zstd_frame.hpp"
#include "format/constants.hpp"
#include "format/container_reader.hpp"
#include "format/damaged.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <cstring>
#include <string>

namespace ckpt::format {
namespace {

/// What is read at once for blocks smaller than this.
constexpr std::uint64_t window_size = 256U << 10U;

/// Both types are cut at the same number of bytes, so the wider one has two blocks for one. More would also let a
/// forged container ask for work without end.
constexpr std::uint64_t max_base_parts = 2;

[[noreturn]] void altered(const ContainerReader& container, std::uint64_t block, const std::string& why) {
  const BlockRecord& record = container.index().blocks[block];
  throw Damaged(DamageKind::altered, record.place, record.place + record.stored_size,
                "'" + container.path() + "': block " + std::to_string(block) + " " + why);
}

}  // namespace

ByteView read_stored_range(const ContainerReader& container, std::uint64_t begin, std::uint64_t size,
                           os::AlignedBuffer& buffer) {
  if (size == 0) return {};
  try {
    const ByteView bytes = container.file().read(begin, size, buffer);
    if (bytes.size() == size) return bytes;
    throw Damaged(DamageKind::truncated, begin + bytes.size(), begin + size,
                  "'" + container.path() + "' ends inside a frame");
  } catch (const Damaged&) {
    throw;
  } catch (const Error& error) {
    if (error.code() != Errc::io) throw;
    throw Damaged(DamageKind::unreadable, begin, begin + size, error.what());
  }
}

ByteView BlockDecoder::read_stored(const ContainerReader& container, std::uint64_t block, Position at) {
  const BlockRecord& record = container.index().blocks[block];
  if (record.stored_size >= window_size) {
    return read_stored_range(container, record.place, record.stored_size, stored_[at.slot]);
  }
  Window& window = windows_[at.depth];
  const bool holds = window.container == container.digest() && record.place >= window.begin &&
                     lies_within(record.place - window.begin, record.stored_size, window.bytes.size());
  if (!holds) {
    const FrameRecord& frame = container.frame_of(block);
    const std::uint64_t end = std::min(record.place + window_size, frame.payload + frame.payload_size);
    window.bytes = {};  // what it holds is gone if the read fails
    window.bytes = read_stored_range(container, record.place, end - record.place, window.buffer);
    window.begin = record.place;
    window.container = container.digest();
  }
  return window.bytes.subspan(record.place - window.begin, record.stored_size);
}

ByteView BlockDecoder::base_bytes(const ContainerReader& container, std::uint64_t block, Position at) {
  const BlockRecord& record = container.index().blocks[block];
  const BaseRef& base = *record.base;
  if (at.depth == max_chain) altered(container, block, "has a chain of bases that is too long");
  std::shared_ptr<const ContainerReader> other;
  if (base.checkpoint != own_shard) other = container.base_container(base);
  const ContainerReader& from = other ? *other : container;
  const auto& blocks = from.index().blocks;
  if (base.block >= blocks.size() || blocks[base.block].hash != base.hash) {
    altered(container, block, "has a base that isn't in '" + from.path() + "'");
  }
  const std::uint64_t size = codec::base_size(record.codec, record.raw_size);
  // A reference is its base, and takes its place.
  const Position next{.depth = at.depth + 1, .slot = record.codec == Codec::reference ? at.slot : 1 - at.slot};
  if (blocks[base.block].raw_size == size) return decode_unchecked(from, base.block, nullptr, next, {});

  os::AlignedBuffer& parts = raw_[next.slot];
  parts.reserve(size);
  std::uint64_t held = 0;
  for (std::uint64_t b = base.block; held < size; ++b) {
    if (b == blocks.size() || b == base.block + max_base_parts || blocks[b].raw_size > size - held) {
      altered(container, block, "has a base of another size");
    }
    (void)decode_unchecked(from, b, nullptr, next, {parts.data() + held, blocks[b].raw_size});
    held += blocks[b].raw_size;
  }
  return {parts.data(), size};
}

ByteView BlockDecoder::decode_unchecked(const ContainerReader& container, std::uint64_t block, const ByteView* given,
                                        Position at, std::span<std::byte> into) {
  const BlockRecord& record = container.index().blocks[block];
  // The base first: it may be read into the buffer that the stored bytes will then have.
  const ByteView base = record.base ? base_bytes(container, block, at) : ByteView();
  const bool is_stored = record.codec != Codec::reference;
  const ByteView stored = given != nullptr ? *given : is_stored ? read_stored(container, block, at) : ByteView();
  if (record.codec == Codec::raw || record.codec == Codec::reference) {
    const ByteView raw = record.codec == Codec::raw ? stored : base;
    if (into.empty()) return raw;
    std::memcpy(into.data(), raw.data(), raw.size());
    return into;
  }
  if (into.empty()) {
    raw_[at.slot].reserve(record.raw_size);
    into = {raw_[at.slot].data(), record.raw_size};
  }
  const bool decoded = record.codec == Codec::zstd      ? codec::zstd_decompress(stored, into)
                       : record.codec == Codec::derived ? typed_.decode_derived(stored, base, into)
                                                        : typed_.decode(stored, base, into);
  if (!decoded) altered(container, block, "can't be decoded");
  return into;
}

ByteView BlockDecoder::decode_checked(const ContainerReader& container, std::uint64_t block, const ByteView* stored) {
  const BlockRecord& record = container.index().blocks[block];
  ByteView raw;
  try {
    raw = decode_unchecked(container, block, stored, {}, {});
  } catch (const Damaged& damage) {
    // Whatever is wrong with a base, it's this block that can't be had.
    throw Damaged(damage.kind(), record.place, record.place + record.stored_size, damage.what());
  }
  if (xxh3_128(raw) != record.hash) {
    altered(container, block, record.base ? "or one of its bases fails its hash" : "fails its hash");
  }
  return raw;
}

ByteView BlockDecoder::decode_or_substitute(const ContainerReader& container, std::uint64_t block,
                                            const ByteView* stored) {
  try {
    return decode_checked(container, block, stored);
  } catch (const Damaged&) {
    auto bytes = container.substitute(block);
    if (!bytes) throw;
    const BlockRecord& record = container.index().blocks[block];
    if (bytes->size() != record.raw_size || xxh3_128(*bytes) != record.hash) throw;
    substituted_ = std::move(*bytes);
    return substituted_;
  }
}

ByteView BlockDecoder::decode(const ContainerReader& container, std::uint64_t block, ByteView stored) {
  return decode_or_substitute(container, block, &stored);
}

ByteView BlockDecoder::read(const ContainerReader& container, std::uint64_t block) {
  return decode_or_substitute(container, block, nullptr);
}

std::optional<Bytes> BaseContainers::substitute(const ContainerReader&, std::uint64_t) const { return std::nullopt; }

}  // namespace ckpt::format
