// SPDX-License-Identifier: Apache-2.0
#include "ops/lossy_values.hpp"

#include "core/bytes.hpp"
#include "core/float_formats.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace ckpt::ops {
namespace {

enum class Number { float64, float32, float16, bfloat16, none };

Number number_of(DType dtype) {
  switch (dtype) {
    case DType::float64:
    case DType::complex128: return Number::float64;
    case DType::float32:
    case DType::complex64: return Number::float32;
    case DType::float16:
    case DType::complex32: return Number::float16;
    case DType::bfloat16: return Number::bfloat16;
    default: return Number::none;
  }
}

std::size_t width_of(Number number) {
  return number == Number::float64 ? 8 : number == Number::float32 ? 4 : number == Number::none ? 0 : 2;
}

double load(Number number, const std::byte* at) {
  switch (number) {
    case Number::float64: return std::bit_cast<double>(load_le<std::uint64_t>(at));
    case Number::float32: return static_cast<double>(std::bit_cast<float>(load_le<std::uint32_t>(at)));
    case Number::float16: return static_cast<double>(decode_float16(load_le<std::uint16_t>(at)));
    default: return static_cast<double>(decode_bfloat16(load_le<std::uint16_t>(at)));
  }
}

/// The nearest of the numbers with so many bits behind the first one, not counting exponents below `least`.
double round_to_bits(double value, int bits, int least) {
  if (value == 0) return value;
  const int exponent = std::max(std::ilogb(value), least);
  const double step = std::ldexp(1.0, exponent - bits);
  return std::nearbyint(value / step) * step;
}

std::uint16_t bits_of_float16(double value) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double rounded = std::abs(round_to_bits(value, 10, -14));
  if (rounded >= 65520) return static_cast<std::uint16_t>(sign | 0x7c00);
  if (rounded < 0x1p-14) return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(rounded * 0x1p24));
  const int exponent = std::ilogb(rounded);
  const auto fraction = static_cast<std::uint16_t>(std::ldexp(rounded, 10 - exponent) - 1024);
  return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>((exponent + 15) << 10) | fraction);
}

std::uint16_t bits_of_bfloat16(double value) {
  const auto rounded = static_cast<float>(round_to_bits(value, 7, -126));
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(rounded) >> 16U);
}

void store(Number number, double value, std::byte* at) {
  switch (number) {
    case Number::float64: store_le(at, std::bit_cast<std::uint64_t>(value)); return;
    case Number::float32: store_le(at, std::bit_cast<std::uint32_t>(static_cast<float>(value))); return;
    case Number::float16: store_le(at, bits_of_float16(value)); return;
    default: store_le(at, bits_of_bfloat16(value)); return;
  }
}

/// What would be rounded beyond the type's range stays as it is.
void store_if_finite(Number number, double value, std::byte* at) {
  std::array<std::byte, 8> before{};
  const std::size_t width = width_of(number);
  std::copy_n(at, width, before.begin());
  store(number, value, at);
  if (!std::isfinite(load(number, at))) std::copy_n(before.begin(), width, at);
}

/// The largest value of the small type.
double range_of(Quantization to) {
  switch (to) {
    case Quantization::int8: return 127;
    case Quantization::int4: return 7;
    default: return 448;
  }
}

double round_to(Quantization to, double scaled) {
  if (to == Quantization::fp8) return std::clamp(round_to_bits(scaled, 3, -6), -448.0, 448.0);
  return std::clamp(std::nearbyint(scaled), -range_of(to), range_of(to));
}

void quantize_group(Number number, Quantization to, std::span<std::byte> group) {
  const std::size_t width = width_of(number);
  double largest = 0;
  for (std::size_t at = 0; at < group.size(); at += width) {
    const double value = std::abs(load(number, group.data() + at));
    if (std::isfinite(value)) largest = std::max(largest, value);
  }
  if (largest == 0) return;
  int exponent = std::ilogb(largest / range_of(to));
  if (std::ldexp(range_of(to), exponent) < largest) ++exponent;
  for (std::size_t at = 0; at < group.size(); at += width) {
    const double value = load(number, group.data() + at);
    if (!std::isfinite(value)) continue;
    store_if_finite(number, std::ldexp(round_to(to, std::ldexp(value, -exponent)), exponent), group.data() + at);
  }
}

}  // namespace

void ValueError::add(const ValueError& other) {
  count += other.count;
  largest = std::max(largest, other.largest);
  sum += other.sum;
}

std::optional<unsigned> number_width(DType dtype) {
  const std::size_t width = width_of(number_of(dtype));
  return width == 0 ? std::nullopt : std::optional(static_cast<unsigned>(width));
}

void quantize(DType dtype, Quantization to, std::span<std::byte> values) {
  const Number number = number_of(dtype);
  const std::size_t width = width_of(number);
  if (to == Quantization::bf16) {
    for (std::size_t at = 0; at < values.size(); at += width) {
      const double value = load(number, values.data() + at);
      const double rounded = std::isfinite(value) ? round_to_bits(value, 7, -126) : value;
      // Beyond bfloat16's range as it is.
      if (std::abs(rounded) < 0x1p128) store_if_finite(number, rounded, values.data() + at);
    }
    return;
  }
  for (std::size_t at = 0; at < values.size(); at += quantized_group * width) {
    quantize_group(number, to, values.subspan(at, std::min(quantized_group * width, values.size() - at)));
  }
}

std::uint64_t magnitude_key(unsigned width, const std::byte* number) {
  switch (width) {
    case 8: return load_le<std::uint64_t>(number) & 0x7fffffffffffffffU;
    case 4: return load_le<std::uint32_t>(number) & 0x7fffffffU;
    default: return load_le<std::uint16_t>(number) & 0x7fffU;
  }
}

void make_small_ones_zero(DType dtype, std::uint64_t key, std::span<std::byte> values) {
  const auto width = static_cast<unsigned>(width_of(number_of(dtype)));
  for (std::size_t at = 0; at < values.size(); at += width) {
    if (magnitude_key(width, values.data() + at) >= key) continue;
    std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(at), width, std::byte{0});
  }
}

ValueError difference(DType dtype, std::span<const std::byte> before, std::span<const std::byte> after) {
  const Number number = number_of(dtype);
  const std::size_t width = width_of(number);
  ValueError error;
  for (std::size_t at = 0; at + width <= before.size(); at += width) {
    const double was = load(number, before.data() + at);
    ++error.count;
    if (!std::isfinite(was)) continue;
    const double distance = std::abs(load(number, after.data() + at) - was);
    error.largest = std::max(error.largest, distance);
    error.sum += distance;
  }
  return error;
}

}  // namespace ckpt::ops
