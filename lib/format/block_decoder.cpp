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
#include <utility>

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

os::AlignedBuffer BlockDecoder::take_buffer(std::size_t size) {
  os::AlignedBuffer buffer;
  if (!spare_.empty()) {
    buffer = std::move(spare_.back());
    spare_.pop_back();
  }
  buffer.reserve(size);
  return buffer;
}

void BlockDecoder::give_back(os::AlignedBuffer buffer) {
  if (buffer.data() != nullptr) spare_.push_back(std::move(buffer));
}

BlockDecoder::Held BlockDecoder::put(Held held, std::span<std::byte> into) {
  if (into.empty()) return held;
  std::memcpy(into.data(), held.bytes.data(), held.bytes.size());
  give_back(std::move(held.own));
  return {.bytes = into, .own = {}};
}

BlockDecoder::Held BlockDecoder::read_stored(const ContainerReader& container, std::uint64_t block, unsigned depth) {
  const BlockRecord& record = container.index().blocks[block];
  if (record.stored_size >= window_size) {
    Held held{.bytes = {}, .own = take_buffer(record.stored_size)};
    held.bytes = read_stored_range(container, record.place, record.stored_size, held.own);
    return held;
  }
  Window& window = windows_[depth];
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
  return {.bytes = window.bytes.subspan(record.place - window.begin, record.stored_size), .own = {}};
}

BlockDecoder::Held BlockDecoder::base_bytes(const ContainerReader& container, std::uint64_t block, unsigned depth) {
  const BlockRecord& record = container.index().blocks[block];
  const BaseRef& base = *record.base;
  if (depth == max_chain) altered(container, block, "has a chain of bases that is too long");
  std::shared_ptr<const ContainerReader> other;
  if (base.checkpoint != own_shard) other = container.base_container(base);
  const ContainerReader& from = other ? *other : container;
  const auto& blocks = from.index().blocks;
  if (base.block >= blocks.size() || blocks[base.block].hash != base.hash) {
    altered(container, block, "has a base that isn't in '" + from.path() + "'");
  }
  const std::uint64_t size = codec::base_size(record.codec, record.raw_size);
  if (blocks[base.block].raw_size == size) return decode_unchecked(from, base.block, nullptr, depth + 1, {});

  Held parts{.bytes = {}, .own = take_buffer(size)};
  std::uint64_t held = 0;
  for (std::uint64_t b = base.block; held < size; ++b) {
    if (b == blocks.size() || b == base.block + max_base_parts || blocks[b].raw_size > size - held) {
      altered(container, block, "has a base of another size");
    }
    (void)decode_unchecked(from, b, nullptr, depth + 1, {parts.own.data() + held, blocks[b].raw_size});
    held += blocks[b].raw_size;
  }
  parts.bytes = {parts.own.data(), size};
  return parts;
}

BlockDecoder::Held BlockDecoder::decode_unchecked(const ContainerReader& container, std::uint64_t block,
                                                  const ByteView* given, unsigned depth, std::span<std::byte> into) {
  const BlockRecord& record = container.index().blocks[block];
  Held base;
  if (record.base) base = base_bytes(container, block, depth);
  if (record.codec == Codec::reference) return put(std::move(base), into);
  Held stored{.bytes = given != nullptr ? *given : ByteView(), .own = {}};
  if (given == nullptr) stored = read_stored(container, block, depth);
  if (record.codec == Codec::raw) return put(std::move(stored), into);

  Held raw;
  if (into.empty() && record.codec == Codec::typed && base.own.data() != nullptr) {
    // In place of its base, which nobody needs any more: half as much memory passes through the cache.
    into = {base.own.data() + (base.bytes.data() - base.own.data()), record.raw_size};
    raw.own = std::move(base.own);
  } else if (into.empty()) {
    raw.own = take_buffer(record.raw_size);
    into = {raw.own.data(), record.raw_size};
  }
  raw.bytes = into;
  const bool decoded = record.codec == Codec::zstd      ? codec::zstd_decompress(stored.bytes, into)
                       : record.codec == Codec::derived ? typed_.decode_derived(stored.bytes, base.bytes, into)
                                                        : typed_.decode(stored.bytes, base.bytes, into);
  if (!decoded) altered(container, block, "can't be decoded");
  give_back(std::move(stored.own));
  give_back(std::move(base.own));
  return raw;
}

ByteView BlockDecoder::decode_checked(const ContainerReader& container, std::uint64_t block, const ByteView* stored) {
  const BlockRecord& record = container.index().blocks[block];
  give_back(std::move(result_.own));
  result_ = {};
  try {
    result_ = decode_unchecked(container, block, stored, 0, {});
  } catch (const Damaged& damage) {
    // Whatever is wrong with a base, it's this block that can't be had.
    throw Damaged(damage.kind(), record.place, record.place + record.stored_size, damage.what());
  }
  if (xxh3_128(result_.bytes) != record.hash) {
    altered(container, block, record.base ? "or one of its bases fails its hash" : "fails its hash");
  }
  return result_.bytes;
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
