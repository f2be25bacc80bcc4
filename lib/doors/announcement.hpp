// SPDX-License-Identifier: Apache-2.0
// What a producer says of a state that it has put into a queue in pieces: everything but the bytes. The state's bytes
// are those of its files, one after the other in the order of the entries, cut every `piece_size` bytes.
//
// As bytes: a CBOR map, then XXH3-128 of it. Whoever can write to the queue can write one: all is checked.
#pragma once

#include "core/bytes.hpp"
#include "core/digest.hpp"
#include "doors/ticket.hpp"
#include "format/catalog.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace ckpt::doors {

inline constexpr std::uint64_t max_piece_size = 8U << 20U;
inline constexpr std::uint64_t max_pieces = 1U << 20U;
inline constexpr std::uint64_t max_announcement_size = 64U << 20U;

struct Announcement {
  Ticket ticket;
  std::vector<format::FileEntry> entries;  ///< in the order of source::arrange()
  std::uint64_t piece_size = max_piece_size;
  std::uint64_t pieces = 0;
  std::uint64_t bytes = 0;
  Digest digest;  ///< XXH3-128 over the pieces' digests
  double stall_seconds = 0;
  bool wants_outcome = false;  ///< the producer waits to be told what became of it
};

/// How many pieces so many bytes make.
[[nodiscard]] std::uint64_t piece_count(std::uint64_t bytes, std::uint64_t piece_size);
/// XXH3-128 over the shard's id, the piece's number and its bytes: a piece in the wrong place is a wrong piece.
[[nodiscard]] Digest piece_digest(const std::string& shard, std::uint64_t number, ByteView bytes);

/// Throws invalid_argument if the state is too large to be announced.
[[nodiscard]] Bytes encode_announcement(const Announcement& announcement);
/// Throws Damaged; unsupported if a newer version wrote it. `name` is for messages.
[[nodiscard]] Announcement decode_announcement(ByteView bytes, const std::string& name);

}  // namespace ckpt::doors
