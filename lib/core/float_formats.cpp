// SPDX-License-Identifier: Apache-2.0
// Counting works on the codes as integers, in runs of a fixed length with counters as wide as the elements: that's what
// compilers turn into vector code.
#include "core/float_formats.hpp"

#include <cmath>
#include <limits>

namespace ckpt {
namespace {

/// What the topmost codes of a format stand for.
enum class Special { none, ieee, one_nan, negative_zero_is_nan };

struct SmallFloat {
  unsigned exponent_bits;
  unsigned fraction_bits;
  int bias;
  Special special;
};

float value_of(const SmallFloat& format, unsigned code) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const unsigned sign_bit = 1U << (format.exponent_bits + format.fraction_bits);
  code &= 2 * sign_bit - 1;
  const unsigned magnitude = code & (sign_bit - 1);
  const bool negative = (code & sign_bit) != 0;
  const unsigned exponent = magnitude >> format.fraction_bits;
  const unsigned fraction = magnitude & ((1U << format.fraction_bits) - 1);

  if (format.special == Special::negative_zero_is_nan && code == sign_bit) return nan;
  if (format.special == Special::one_nan && magnitude == sign_bit - 1) return nan;
  if (format.special == Special::ieee && exponent == (1U << format.exponent_bits) - 1) {
    const float top = fraction == 0 ? std::numeric_limits<float>::infinity() : nan;
    return negative ? -top : top;
  }
  const unsigned significand = exponent == 0 ? fraction : fraction + (1U << format.fraction_bits);
  const int power = (exponent == 0 ? 1 : static_cast<int>(exponent)) - format.bias;
  const float value = std::ldexp(static_cast<float>(significand), power - static_cast<int>(format.fraction_bits));
  return negative ? -value : value;
}

std::array<float, 256> table_of(const SmallFloat& format) {
  std::array<float, 256> table{};
  for (unsigned code = 0; code < table.size(); ++code) table[code] = value_of(format, code);
  return table;
}

/// Powers of two alone: no sign, no fraction, no zero.
std::array<float, 256> table_of_e8m0() {
  std::array<float, 256> table{};
  for (unsigned code = 0; code < 255; ++code) table[code] = std::ldexp(1.0F, static_cast<int>(code) - 127);
  table[255] = std::numeric_limits<float>::quiet_NaN();
  return table;
}

/// `mask` takes the sign away; the codes from `first_nan` on are NaN; 0 for `first_nan` or `infinity`: there is none.
template <class Code, Code mask, Code first_nan, Code infinity>
NonFiniteCount count_codes(ByteView elements) {
  constexpr std::size_t run = 128;
  NonFiniteCount total;
  const std::size_t count = elements.size() / sizeof(Code);
  const auto is_nan = [](Code code) { return first_nan != 0 && static_cast<Code>(code & mask) >= first_nan; };
  const auto is_inf = [](Code code) { return infinity != 0 && static_cast<Code>(code & mask) == infinity; };
  std::size_t i = 0;
  for (; i + run <= count; i += run) {
    std::array<Code, run> codes;
    std::memcpy(codes.data(), elements.data() + i * sizeof(Code), sizeof codes);
    Code nan = 0;
    Code inf = 0;
    for (std::size_t k = 0; k < run; ++k) {
      nan = static_cast<Code>(nan + static_cast<Code>(is_nan(codes[k])));
      inf = static_cast<Code>(inf + static_cast<Code>(is_inf(codes[k])));
    }
    total.nan += nan;
    total.inf += inf;
  }
  for (; i < count; ++i) {
    const Code code = load_le<Code>(elements.data() + i * sizeof(Code));
    total.nan += is_nan(code) ? 1U : 0U;
    total.inf += is_inf(code) ? 1U : 0U;
  }
  return total;
}

}  // namespace

const std::array<float, 256>* small_float_values(DType dtype) {
  static const std::array<float, 256> e4m3fn = table_of({4, 3, 7, Special::one_nan});
  static const std::array<float, 256> e5m2 = table_of({5, 2, 15, Special::ieee});
  static const std::array<float, 256> e4m3fnuz = table_of({4, 3, 8, Special::negative_zero_is_nan});
  static const std::array<float, 256> e5m2fnuz = table_of({5, 2, 16, Special::negative_zero_is_nan});
  static const std::array<float, 256> e8m0 = table_of_e8m0();
  static const std::array<float, 256> e2m1 = table_of({2, 1, 1, Special::none});
  static const std::array<float, 256> e2m3 = table_of({2, 3, 1, Special::none});
  static const std::array<float, 256> e3m2 = table_of({3, 2, 3, Special::none});
  switch (dtype) {
    case DType::float8_e4m3fn: return &e4m3fn;
    case DType::float8_e5m2: return &e5m2;
    case DType::float8_e4m3fnuz: return &e4m3fnuz;
    case DType::float8_e5m2fnuz: return &e5m2fnuz;
    case DType::float8_e8m0fnu: return &e8m0;
    case DType::float4:
    case DType::float4_e2m1fn_x2: return &e2m1;
    case DType::float6_e2m3: return &e2m3;
    case DType::float6_e3m2: return &e3m2;
    default: return nullptr;
  }
}

NonFiniteCount count_non_finite(DType dtype, ByteView elements) {
  using u8 = std::uint8_t;
  using u16 = std::uint16_t;
  using u32 = std::uint32_t;
  using u64 = std::uint64_t;
  switch (dtype) {
    case DType::float64:
    case DType::complex128:
      return count_codes<u64, 0x7fffffffffffffff, 0x7ff0000000000001, 0x7ff0000000000000>(elements);
    case DType::float32:
    case DType::complex64: return count_codes<u32, 0x7fffffff, 0x7f800001, 0x7f800000>(elements);
    case DType::float16:
    case DType::complex32: return count_codes<u16, 0x7fff, 0x7c01, 0x7c00>(elements);
    case DType::bfloat16: return count_codes<u16, 0x7fff, 0x7f81, 0x7f80>(elements);
    case DType::float8_e4m3fn: return count_codes<u8, 0x7f, 0x7f, 0>(elements);
    case DType::float8_e5m2: return count_codes<u8, 0x7f, 0x7d, 0x7c>(elements);
    case DType::float8_e8m0fnu: return count_codes<u8, 0xff, 0xff, 0>(elements);
    case DType::float8_e4m3fnuz:
    case DType::float8_e5m2fnuz: {
      // The one NaN isn't the highest code: it's counted the way infinities are.
      return {.nan = count_codes<u8, 0xff, 0, 0x80>(elements).inf, .inf = 0};
    }
    default: return {};
  }
}

bool can_be_non_finite(DType dtype) {
  switch (dtype) {
    case DType::float64:
    case DType::float32:
    case DType::float16:
    case DType::bfloat16:
    case DType::float8_e4m3fn:
    case DType::float8_e5m2:
    case DType::float8_e4m3fnuz:
    case DType::float8_e5m2fnuz:
    case DType::float8_e8m0fnu:
    case DType::complex128:
    case DType::complex64:
    case DType::complex32: return true;
    default: return false;
  }
}

}  // namespace ckpt
