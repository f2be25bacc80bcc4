// SPDX-License-Identifier: Apache-2.0
// What the codecs need to know of an element type: how wide it is, and how its bits are ordered.
#pragma once

#include "core/tensor.hpp"

#include <cstdint>

namespace ckpt::codec {

/// Numbers are part of the on-disk format.
enum class NumberKind : std::uint8_t {
  integer = 0,   ///< two's complement, or no number at all
  floating = 1,  ///< sign bit, exponent, fraction, from the top: IEEE 754 and its relatives
};

struct Element {
  NumberKind kind = NumberKind::integer;
  std::uint8_t width = 1;  ///< bytes: 1, 2, 4 or 8

  friend bool operator==(const Element&, const Element&) = default;
};

/// Complex numbers are pairs, and types of less than a byte are bytes.
[[nodiscard]] Element element_of(DType dtype);

/// True where the type says nothing of what the bytes are: a guess may do better.
[[nodiscard]] bool is_untyped(DType dtype);

}  // namespace ckpt::codec
