// SPDX-License-Identifier: Apache-2.0
#include "format/frame.hpp"

#include "format/constants.hpp"
#include "format/damaged.hpp"

#include <algorithm>
#include <numeric>

namespace ckpt::format {
namespace {

constexpr std::uint32_t magic = 0x52464b43;  // "CKFR"
constexpr std::size_t checksum_at = 40;

[[noreturn]] void refuse(std::uint64_t position, const char* why) {
  throw Damaged(DamageKind::altered, position, position + frame_fixed_size,
                "frame header at byte " + std::to_string(position) + " " + why);
}

/// What stands in the place of a base where there is none.
constexpr BaseRef no_base{.checkpoint = 0, .rank = 0, .block = 0, .hash = {}};

void append_base(Bytes& out, const BaseRef& base) {
  append_le(out, base.checkpoint);
  append_le(out, base.rank);
  append_le(out, base.block);
  append(out, base.hash.bytes);
}

BaseRef load_base(const std::byte* at) {
  BaseRef base{.checkpoint = load_le<std::uint32_t>(at),
               .rank = load_le<std::uint32_t>(at + 4),
               .block = load_le<std::uint64_t>(at + 8),
               .hash = {}};
  std::copy_n(at + 16, base.hash.bytes.size(), base.hash.bytes.begin());
  return base;
}

std::uint64_t checksum_of(ByteView header) {
  Bytes copy(header.begin(), header.end());
  store_le<std::uint64_t>(copy.data() + checksum_at, 0);
  return xxh3_64(copy);
}

}  // namespace

Bytes encode_frame_header(const FrameHeader& header, std::uint64_t position) {
  const bool any_base = std::any_of(header.entries.begin(), header.entries.end(),
                                    [](const FrameEntry& entry) { return entry.base.has_value(); });
  const std::size_t entry_size = any_base ? frame_entry_size_with_base : frame_entry_size;
  const std::uint64_t bare = frame_fixed_size + header.entries.size() * entry_size;
  const std::uint64_t alignment = header.payload_size >= align_from ? payload_alignment : section_alignment;
  const std::uint64_t size = align_up(position + bare, alignment) - position;

  Bytes out;
  out.reserve(size);
  append_le<std::uint32_t>(out, magic);
  append_le(out, static_cast<std::uint16_t>(header.kind));
  append_le<std::uint16_t>(out, 0);
  append_le(out, size);
  append_le(out, header.payload_size);
  append_le(out, header.first_block);
  append_le(out, static_cast<std::uint32_t>(header.entries.size()));
  append_le(out, static_cast<std::uint32_t>(entry_size));
  append_le<std::uint64_t>(out, 0);
  for (const FrameEntry& entry : header.entries) {
    append_le(out, entry.raw_size);
    append_le(out, entry.stored_size);
    append_le<std::uint64_t>(out, static_cast<std::uint64_t>(entry.codec) | std::uint64_t{entry.depth} << 8U);
    append(out, entry.hash.bytes);
    if (any_base) append_base(out, entry.base.value_or(no_base));
  }
  out.resize(size);
  store_le(out.data() + checksum_at, checksum_of(out));
  return out;
}

std::uint64_t frame_header_size(ByteView fixed, std::uint64_t position) {
  if (fixed.size() < frame_fixed_size) refuse(position, "ends early");
  if (load_le<std::uint32_t>(fixed.data()) != magic) refuse(position, "has a wrong magic");
  const auto size = load_le<std::uint64_t>(fixed.data() + 8);
  if (size < frame_fixed_size || size > max_frame_header) refuse(position, "has an impossible size");
  return size;
}

FrameHeader decode_frame_header(ByteView data, std::uint64_t position) {
  if (frame_header_size(data, position) != data.size()) refuse(position, "has another size");
  if (load_le<std::uint64_t>(data.data() + checksum_at) != checksum_of(data)) refuse(position, "fails its checksum");

  FrameHeader header{.kind = static_cast<FrameKind>(load_le<std::uint16_t>(data.data() + 4)),
                     .header_size = data.size(),
                     .payload_size = load_le<std::uint64_t>(data.data() + 16),
                     .first_block = load_le<std::uint64_t>(data.data() + 24),
                     .entries = {}};
  if (header.kind != FrameKind::catalog && header.kind != FrameKind::blocks) refuse(position, "is of an unknown kind");
  if (load_le<std::uint16_t>(data.data() + 6) != 0) refuse(position, "has a reserved field that is not zero");
  const auto count = load_le<std::uint32_t>(data.data() + 32);
  const auto entry_size = load_le<std::uint32_t>(data.data() + 36);
  if (entry_size < frame_entry_size || entry_size > max_frame_header)
    refuse(position, "has entries of an impossible size");
  if (count == 0 || count > max_frame_entries || count > (data.size() - frame_fixed_size) / entry_size)
    refuse(position, "has too many entries");

  std::uint64_t stored = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::byte* at = data.data() + frame_fixed_size + std::uint64_t{i} * entry_size;
    FrameEntry entry{.raw_size = load_le<std::uint64_t>(at),
                     .stored_size = load_le<std::uint64_t>(at + 8),
                     .codec = Codec::raw,
                     .depth = 0,
                     .hash = {},
                     .base = {}};
    const auto codec_and_depth = load_le<std::uint64_t>(at + 16);
    const std::uint64_t codec = codec_and_depth & 0xffU;
    if (codec >= codec_count) refuse(position, "has an unknown codec");
    if (codec_and_depth >> 8U > max_chain) refuse(position, "has a chain that is too long");
    entry.codec = static_cast<Codec>(codec);
    entry.depth = static_cast<std::uint8_t>(codec_and_depth >> 8U);
    if (entry.depth > 0 && entry_size < frame_entry_size_with_base) refuse(position, "has a depth without a base");
    if (!codec::may_have(entry.codec, entry.depth > 0)) refuse(position, "has a base that the codec can't have");
    if (entry_size >= frame_entry_size_with_base) {
      const BaseRef base = load_base(at + frame_entry_size);
      if (entry.depth > 0) entry.base = base;
      if (entry.depth == 0 && base != no_base) refuse(position, "has a base without a depth");
    }
    if (entry.codec == Codec::raw && entry.raw_size != entry.stored_size)
      refuse(position, "has a raw entry of two sizes");
    std::copy_n(at + 24, entry.hash.bytes.size(), entry.hash.bytes.begin());
    const auto sum = checked_add(stored, entry.stored_size);
    if (!sum) refuse(position, "has an impossible size");
    stored = *sum;
    header.entries.push_back(entry);
  }
  if (stored != header.payload_size) refuse(position, "has entries that don't add up");
  const ByteView padding = data.subspan(frame_fixed_size + std::uint64_t{count} * entry_size);
  if (std::any_of(padding.begin(), padding.end(), [](std::byte b) { return b != std::byte{0}; })) {
    refuse(position, "has padding that is not zero");
  }
  return header;
}

}  // namespace ckpt::format
