// SPDX-License-Identifier: Apache-2.0
// What a block may be decoded against: a block of another checkpoint, or of its own shard.
#pragma once

#include "core/digest.hpp"

#include <algorithm>
#include <compare>
#include <cstdint>
#include <vector>

namespace ckpt::format {

/// A checkpoint that blocks refer to. Its step alone isn't enough, since it may hold other content one day, nor its id,
/// since two steps may hold the same, and one be stored against the other.
struct BaseCheckpoint {
  Digest id;
  std::uint64_t step = 0;
  friend auto operator<=>(const BaseCheckpoint&, const BaseCheckpoint&) = default;
};

inline bool contains(const std::vector<BaseCheckpoint>& list, const BaseCheckpoint& checkpoint) {
  return std::find(list.begin(), list.end(), checkpoint) != list.end();
}

/// The row of a checkpoint in a list that has each once; it's appended if it isn't there.
inline std::uint32_t row_of(std::vector<BaseCheckpoint>& list, const BaseCheckpoint& checkpoint) {
  const auto known = std::find(list.begin(), list.end(), checkpoint);
  const auto row = static_cast<std::uint32_t>(known - list.begin());
  if (known == list.end()) list.push_back(checkpoint);
  return row;
}

/// Instead of a checkpoint's number: the base is in the same container.
inline constexpr std::uint32_t own_shard = 0xffffffff;

/// The base of a block: the bytes from the start of the base block on, as many as the codec needs.
struct BaseRef {
  std::uint32_t checkpoint = own_shard;  ///< a row of the catalog's table of bases, or own_shard
  std::uint32_t rank = 0;                ///< of the shard there; the own rank for own_shard
  std::uint64_t block = 0;
  Digest hash;  ///< of the base block's raw bytes
  friend bool operator==(const BaseRef&, const BaseRef&) = default;
};

/// The most blocks that are decoded to decode one, itself not counted.
inline constexpr std::uint8_t max_chain = 8;

}  // namespace ckpt::format
