// SPDX-License-Identifier: Apache-2.0
// How often each byte value occurs, and what that says of the size that a code for it can have.
#pragma once

#include "core/bytes.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace ckpt::codec {

struct ByteHistogram {
  std::array<std::uint32_t, 256> counts{};

  void add(ByteView bytes);
  [[nodiscard]] std::uint64_t total() const;
  /// Bits a byte, of order zero.
  [[nodiscard]] double entropy() const;
  /// Bits that a stream of these bytes takes as it will be stored: nothing if it's constant, eight bits a byte if it's
  /// noise; a Huffman code has a bit a byte at least, runs of one value take less.
  [[nodiscard]] double stored_bits() const;
};

[[nodiscard]] ByteHistogram histogram_of(ByteView bytes);
/// Of at most `limit` bytes, in a few runs spread over all.
[[nodiscard]] ByteHistogram sample_histogram(ByteView bytes, std::size_t limit);
/// How often a byte is like the one before it, of the same sample: 0 as chance has it, 1 always.
[[nodiscard]] double sample_clustering(ByteView bytes, std::size_t limit);

}  // namespace ckpt::codec
