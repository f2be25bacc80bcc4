// SPDX-License-Identifier: Apache-2.0
// Elements of any type as doubles, in short runs that stay in the cache: what statistics and comparisons count on.
//
// A complex number is two numbers; so is a byte that packs two. bool is 0 and 1; quantised integers are the integers
// that are stored. 64-bit integers are rounded.
#pragma once

#include "core/bytes.hpp"
#include "core/tensor.hpp"

#include <array>
#include <cstddef>

namespace ckpt::ops {

inline constexpr std::size_t widened_run = 1024;
using Widened = std::array<double, widened_run>;

/// False for opaque bytes and types whose width alone is known.
[[nodiscard]] bool is_numeric(DType dtype);

/// How the elements of a type are stored, as numbers: parts of complex ones, halves of packed ones.
struct Numbers {
  unsigned bits = 0;
  unsigned per_element = 1;
};
[[nodiscard]] Numbers numbers_of(DType dtype);

/// The numbers [first, first + count) of `elements`; at most widened_run.
void widen(DType dtype, ByteView elements, std::size_t first, std::size_t count, Widened& to);

}  // namespace ckpt::ops
