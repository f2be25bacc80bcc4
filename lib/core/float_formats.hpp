// SPDX-License-Identifier: Apache-2.0
// The values behind the bits of short floats, and a fast count of what isn't finite.
//
// Formats: IEEE 754 binary16; bfloat16; the OCP 8-bit formats (OFP8), their FNUZ variants (no negative zero, whose
// code is the one NaN); OCP microscaling e8m0, e2m1, e2m3, e3m2.
#pragma once

#include "core/bytes.hpp"
#include "core/tensor.hpp"

#include <array>
#include <bit>
#include <cstdint>

namespace ckpt {

[[nodiscard]] inline float decode_bfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16U);
}

[[nodiscard]] inline float decode_float16(std::uint16_t bits) {
  // Exponent and fraction at float32's place, then the difference of the biases: exact for subnormals, too.
  const std::uint32_t magnitude = (std::uint32_t{bits} & 0x7fffU) << 13U;
  const std::uint32_t scaled = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112F);
  const std::uint32_t special = magnitude | 0x7f800000U;
  const std::uint32_t sign = (std::uint32_t{bits} & 0x8000U) << 16U;
  return std::bit_cast<float>(sign | ((bits & 0x7c00U) == 0x7c00U ? special : scaled));
}

/// The value of each code of a float format of at most 8 bits: float8_*, float4, float6_*. Codes beyond the width have
/// the value of their low bits. Null for any other type. Static storage; thread-safe.
[[nodiscard]] const std::array<float, 256>* small_float_values(DType dtype);

struct NonFiniteCount {
  std::uint64_t nan = 0;
  std::uint64_t inf = 0;

  NonFiniteCount& operator+=(const NonFiniteCount& other) {
    nan += other.nan;
    inf += other.inf;
    return *this;
  }
  friend bool operator==(const NonFiniteCount&, const NonFiniteCount&) = default;
};

/// Counts NaN and infinities; each part of a complex number counts for itself. Types without such values give zeros. A
/// partial element at the end is passed over. At memory speed.
[[nodiscard]] NonFiniteCount count_non_finite(DType dtype, ByteView elements);

/// True for types that have a code for NaN or for an infinity.
[[nodiscard]] bool can_be_non_finite(DType dtype);

}  // namespace ckpt
