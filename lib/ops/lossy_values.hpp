// SPDX-License-Identifier: Apache-2.0
// Numbers that need fewer bits than they have: quantised in groups, or zero where they're small. Types stay.
#pragma once

#include "core/tensor.hpp"

#include <ckpt/compress.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace ckpt::ops {

/// Bytes of one number of a type that has fractions; a complex one is two. Nothing for all other types, and for those
/// of 8 bits and less.
[[nodiscard]] std::optional<unsigned> number_width(DType dtype);

/// What a change does to numbers that are finite.
struct ValueError {
  std::uint64_t count = 0;
  double largest = 0;
  double sum = 0;
  void add(const ValueError& other);
};

/// Values that share a scale.
inline constexpr std::size_t quantized_group = 128;

/// Replaces numbers by what they are once they've been quantised and are numbers again. Each group has a scale, a power
/// of two, by which its largest one fits; so what comes out has few bits and packs well. What isn't finite stays. Whole
/// numbers of a type with number_width().
void quantize(DType dtype, Quantization to, std::span<std::byte> values);

/// The magnitude of a number as an integer: larger for larger ones, largest for NaN.
[[nodiscard]] std::uint64_t magnitude_key(unsigned width, const std::byte* number);

/// Makes zeros of what is smaller than the key.
void make_small_ones_zero(DType dtype, std::uint64_t key, std::span<std::byte> values);

/// How far `after` is from `before`.
[[nodiscard]] ValueError difference(DType dtype, std::span<const std::byte> before, std::span<const std::byte> after);

}  // namespace ckpt::ops
