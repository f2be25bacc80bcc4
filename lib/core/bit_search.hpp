// SPDX-License-Identifier: Apache-2.0
// Which single bit, turned over, makes XXH3-64 of some bytes a given sum: each bit costs a hundred nanoseconds instead
// of a hash of everything.
#pragma once

#include "core/bytes.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace ckpt {

/// Thread-safe: bytes can be searched by many at once. `data` must outlive the search.
class BitSearch {
 public:
  BitSearch(ByteView data, std::uint64_t sum);

  /// The bit of byte `at` with which the sum is right.
  [[nodiscard]] std::optional<unsigned> bit_at(std::size_t at) const;

 private:
  static constexpr std::size_t lanes = 8;
  using Lanes = std::array<std::uint64_t, lanes>;

  [[nodiscard]] std::optional<unsigned> bit_by_hashing(std::size_t at) const;
  [[nodiscard]] std::uint64_t sum_with(std::size_t block, std::size_t pair, std::uint64_t first,
                                       std::uint64_t second) const;

  ByteView data_;
  std::uint64_t sum_;
  std::vector<Lanes> added_;    ///< what each block adds to the accumulators
  std::vector<Lanes> reached_;  ///< the accumulators once it's added
  Lanes mixed_{};               ///< what each pair of accumulators is worth in the end; every other one is unused
};

}  // namespace ckpt
