// SPDX-License-Identifier: Apache-2.0
// Every code of every short float against the plain formula: sign, significand, power of two.
#include "core/float_formats.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

using namespace ckpt;

namespace {

/// The value by the book for a format with IEEE's special codes.
double by_the_book(unsigned code, int exponent_bits, int fraction_bits, int bias) {
  const double sign = (code >> (exponent_bits + fraction_bits)) != 0 ? -1.0 : 1.0;
  const int exponent = static_cast<int>(code >> fraction_bits) & ((1 << exponent_bits) - 1);
  const double fraction = static_cast<double>(code & ((1U << fraction_bits) - 1)) / std::pow(2.0, fraction_bits);
  if (exponent == 0) return sign * fraction * std::pow(2.0, 1 - bias);
  return sign * (1 + fraction) * std::pow(2.0, exponent - bias);
}

bool same_value(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

template <class T>
ByteView bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

}  // namespace

TEST_SUITE("float formats") {
  TEST_CASE("each of the 65536 codes of float16 and bfloat16 has its value") {
    for (unsigned code = 0; code < 65536; ++code) {
      double half = by_the_book(code, 5, 10, 15);
      if ((code & 0x7c00U) == 0x7c00U) half = (code & 0x3ffU) != 0 ? NAN : (code & 0x8000U) != 0 ? -INFINITY : INFINITY;
      double brain = by_the_book(code, 8, 7, 127);
      if ((code & 0x7f80U) == 0x7f80U) brain = (code & 0x7fU) != 0 ? NAN : (code & 0x8000U) != 0 ? -INFINITY : INFINITY;
      if (same_value(double{decode_float16(static_cast<std::uint16_t>(code))}, half) &&
          same_value(double{decode_bfloat16(static_cast<std::uint16_t>(code))}, brain)) {
        continue;
      }
      FAIL("code " << code);
    }
  }

  TEST_CASE("each code of the floats of at most 8 bits has its value") {
    for (unsigned code = 0; code < 256; ++code) {
      CAPTURE(code);
      const auto value = [&](DType dtype) { return double{(*small_float_values(dtype))[code]}; };
      CHECK(same_value(value(DType::float8_e4m3fn), (code & 0x7fU) == 0x7fU ? NAN : by_the_book(code, 4, 3, 7)));
      double e5m2 = by_the_book(code, 5, 2, 15);
      if ((code & 0x7cU) == 0x7cU) e5m2 = (code & 3U) != 0 ? NAN : code > 0x80U ? -INFINITY : INFINITY;
      CHECK(same_value(value(DType::float8_e5m2), e5m2));
      CHECK(same_value(value(DType::float8_e4m3fnuz), code == 0x80 ? NAN : by_the_book(code, 4, 3, 8)));
      CHECK(same_value(value(DType::float8_e5m2fnuz), code == 0x80 ? NAN : by_the_book(code, 5, 2, 16)));
      CHECK(same_value(value(DType::float8_e8m0fnu), code == 255 ? NAN : std::pow(2.0, static_cast<int>(code) - 127)));
      CHECK(same_value(value(DType::float4), by_the_book(code & 15U, 2, 1, 1)));
      CHECK(same_value(value(DType::float6_e2m3), by_the_book(code & 63U, 2, 3, 1)));
      CHECK(same_value(value(DType::float6_e3m2), by_the_book(code & 63U, 3, 2, 3)));
    }
  }

  TEST_CASE("the largest values are those of the formats' definitions") {
    CHECK((*small_float_values(DType::float8_e4m3fn))[0x7e] == 448);
    CHECK((*small_float_values(DType::float8_e5m2))[0x7b] == 57344);
    CHECK((*small_float_values(DType::float8_e4m3fnuz))[0x7f] == 240);
    CHECK((*small_float_values(DType::float8_e5m2fnuz))[0x7f] == 57344);
    CHECK((*small_float_values(DType::float4))[7] == 6);
    CHECK((*small_float_values(DType::float6_e2m3))[31] == 7.5F);
    CHECK((*small_float_values(DType::float6_e3m2))[31] == 28);
    CHECK(decode_float16(0x7bff) == 65504);
    CHECK(small_float_values(DType::float32) == nullptr);
  }

  TEST_CASE("non-finite codes of 8 bits are counted as their values say") {
    for (const DType dtype : {DType::float8_e4m3fn, DType::float8_e5m2, DType::float8_e4m3fnuz, DType::float8_e5m2fnuz,
                              DType::float8_e8m0fnu}) {
      CAPTURE(name_of(dtype));
      std::vector<std::uint8_t> all;
      NonFiniteCount want;
      for (unsigned code = 0; code < 256; ++code) {
        all.push_back(static_cast<std::uint8_t>(code));
        const float value = (*small_float_values(dtype))[code];
        want.nan += std::isnan(value) ? 1U : 0U;
        want.inf += std::isinf(value) ? 1U : 0U;
      }
      CHECK(count_non_finite(dtype, bytes_of(all)) == want);
      CHECK(can_be_non_finite(dtype));
    }
  }

  TEST_CASE("non-finite codes of 16 bits are counted as their values say") {
    std::vector<std::uint16_t> all;
    NonFiniteCount half;
    NonFiniteCount brain;
    for (unsigned code = 0; code < 65536; ++code) {
      const auto bits = static_cast<std::uint16_t>(code);
      all.push_back(bits);
      half.nan += std::isnan(decode_float16(bits)) ? 1U : 0U;
      half.inf += std::isinf(decode_float16(bits)) ? 1U : 0U;
      brain.nan += std::isnan(decode_bfloat16(bits)) ? 1U : 0U;
      brain.inf += std::isinf(decode_bfloat16(bits)) ? 1U : 0U;
    }
    CHECK(half.nan == 2046);
    CHECK(count_non_finite(DType::float16, bytes_of(all)) == half);
    CHECK(count_non_finite(DType::complex32, bytes_of(all)) == half);
    CHECK(count_non_finite(DType::bfloat16, bytes_of(all)) == brain);
  }

  TEST_CASE("non-finite values are counted at every place of long and odd runs of float32 and float64") {
    for (const std::size_t length : {1U, 127U, 128U, 129U, 1000U}) {
      for (const std::size_t at : {std::size_t{0}, length / 2, length - 1}) {
        CAPTURE(length);
        CAPTURE(at);
        std::vector<float> single(length, std::numeric_limits<float>::max());
        single[at] = -INFINITY;
        CHECK(count_non_finite(DType::float32, bytes_of(single)) == NonFiniteCount{.nan = 0, .inf = 1});
        single[at] = std::numeric_limits<float>::signaling_NaN();
        CHECK(count_non_finite(DType::complex64, bytes_of(single)) == NonFiniteCount{.nan = 1, .inf = 0});
        std::vector<double> wide(length, std::numeric_limits<double>::denorm_min());
        wide[at] = -std::numeric_limits<double>::quiet_NaN();
        CHECK(count_non_finite(DType::float64, bytes_of(wide)) == NonFiniteCount{.nan = 1, .inf = 0});
      }
    }
    const std::vector<float> nothing_but(4000, INFINITY);
    CHECK(count_non_finite(DType::float32, bytes_of(nothing_but)) == NonFiniteCount{.nan = 0, .inf = 4000});
  }

  TEST_CASE("integers have no non-finite codes") {
    const std::vector<std::uint32_t> ones(300, 0xffffffffU);
    for (const DType dtype : {DType::int32, DType::uint8, DType::boolean, DType::opaque, DType::float4}) {
      CHECK(count_non_finite(dtype, bytes_of(ones)) == NonFiniteCount{});
      CHECK_FALSE(can_be_non_finite(dtype));
    }
  }
}
