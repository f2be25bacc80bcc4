// SPDX-License-Identifier: Apache-2.0
// The frames of a container: a checksummed header before each payload says what follows, so that a container can be
// read from a pipe and its index be rebuilt.
//
//   offset  size  field
//        0     4  magic "CKFR"
//        4     2  kind: 1 catalog, 2 blocks
//        6     2  zero
//        8     8  size of this header with its padding; the payload follows
//       16     8  payload size
//       24     8  number of the first block (kind 2), else 0
//       32     4  number of entries
//       36     4  size of an entry: 40, or 72 where one has a base; a reader steps by it and passes over what it
//                 doesn't know
//       40     8  XXH3-64 of the header, this field taken as zero, padding included
//       48     n  entries: raw size (8), stored size (8), codec (1), depth (1), zero (6), XXH3-128 of the raw bytes
//       (16);
//                 and for the base: checkpoint (4), rank (4), block (8), XXH3-128 of its raw bytes (16), all zero for a
//                 depth of zero
#pragma once

#include "codec/codec_id.hpp"
#include "core/bytes.hpp"
#include "core/digest.hpp"
#include "format/base.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace ckpt::format {

enum class FrameKind : std::uint16_t { catalog = 1, blocks = 2 };

struct FrameEntry {
  std::uint64_t raw_size = 0;
  std::uint64_t stored_size = 0;
  Codec codec = Codec::raw;
  std::uint8_t depth = 0;  ///< of the chain of bases: 0 without a base
  Digest hash;             ///< of the raw bytes
  std::optional<BaseRef> base;
};

struct FrameHeader {
  FrameKind kind = FrameKind::blocks;
  std::uint64_t header_size = 0;
  std::uint64_t payload_size = 0;
  std::uint64_t first_block = 0;
  std::vector<FrameEntry> entries;
};

inline constexpr std::size_t frame_fixed_size = 48;
inline constexpr std::size_t frame_entry_size = 40;
inline constexpr std::size_t frame_entry_size_with_base = 72;

/// The header of a frame that starts at `position` of its container, padded so that the payload starts where it must;
/// header_size is computed.
[[nodiscard]] Bytes encode_frame_header(const FrameHeader& header, std::uint64_t position);

/// The header's size, from its first frame_fixed_size bytes; checks magic and limits. Throws Damaged; `position` is
/// for the message.
[[nodiscard]] std::uint64_t frame_header_size(ByteView fixed, std::uint64_t position);
/// `data` is the whole header. Throws Damaged.
[[nodiscard]] FrameHeader decode_frame_header(ByteView data, std::uint64_t position);

}  // namespace ckpt::format
