// SPDX-License-Identifier: Apache-2.0
#include "ops/tensor_stats.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

using namespace ckpt;

namespace {

template <class T>
TensorStats stats_of(DType dtype, const std::vector<T>& values, std::uint64_t count = 0) {
  ops::StatsAccumulator stats;
  const ByteView bytes = std::as_bytes(std::span(values));
  stats.add(dtype, bytes, count != 0 ? count : bytes.size() * 8 / bits_of(dtype));
  return stats.result();
}

}  // namespace

TEST_SUITE("tensor statistics") {
  TEST_CASE("NaN and infinities are counted and left out of the rest") {
    const TensorStats stats = stats_of<float>(DType::float32, {1, -2, 4, NAN, INFINITY, -INFINITY});
    CHECK(stats.min == -2);
    CHECK(stats.max == 4);
    CHECK(stats.mean == 1);
    CHECK(stats.norm == doctest::Approx(std::sqrt(21.0)));
    CHECK(stats.nan == 1);
    CHECK(stats.inf == 2);
  }

  TEST_CASE("without a finite value there is no smallest, largest, mean and norm") {
    const TensorStats stats = stats_of<double>(DType::float64, {NAN});
    CHECK_FALSE(stats.min.has_value());
    CHECK_FALSE(stats.max.has_value());
    CHECK_FALSE(stats.mean.has_value());
    CHECK_FALSE(stats.norm.has_value());
    CHECK(stats.nan == 1);
    CHECK_FALSE(ops::StatsAccumulator{}.result().mean.has_value());
  }

  TEST_CASE("huge and tiny float64 neither overflow nor vanish in the norm and mean") {
    const TensorStats huge = stats_of<double>(DType::float64, {1e308, 1e308, 1e308, -1e308});
    CHECK(*huge.mean == doctest::Approx(0.5e308));
    const TensorStats large = stats_of<double>(DType::float64, {3e200, 4e200});
    CHECK(*large.norm == doctest::Approx(5e200));
    const TensorStats tiny = stats_of<double>(DType::float64, {3e-200, 4e-200, 0});
    CHECK(*tiny.norm / 1e-200 == doctest::Approx(5));
    const TensorStats zero = stats_of<float>(DType::float32, std::vector<float>(3000));
    CHECK(zero.norm == 0);
    CHECK(zero.mean == 0);
    CHECK(zero.min == 0);
  }

  TEST_CASE("every integer type has its sign and width") {
    CHECK(stats_of<std::uint8_t>(DType::uint8, {0, 255}).max == 255);
    CHECK(stats_of<std::uint8_t>(DType::int8, {0, 255}).min == -1);
    CHECK(stats_of<std::uint8_t>(DType::qint8, {0, 255}).min == -1);
    CHECK(stats_of<std::uint8_t>(DType::quint8, {0, 255}).max == 255);
    CHECK(stats_of<std::int16_t>(DType::int16, {-300, 300}).min == -300);
    CHECK(stats_of<std::uint16_t>(DType::uint16, {65535}).max == 65535);
    CHECK(stats_of<std::int32_t>(DType::int32, {-70000, 1}).min == -70000);
    CHECK(stats_of<std::uint32_t>(DType::uint32, {4294967295U}).max == 4294967295.0);
    CHECK(stats_of<std::int64_t>(DType::int64, {-(1LL << 40)}).min == -std::pow(2.0, 40));
    CHECK(stats_of<std::uint64_t>(DType::uint64, {1ULL << 63U}).max == std::pow(2.0, 63));
    CHECK(stats_of<std::uint8_t>(DType::boolean, {1, 0, 1, 1}).mean == 0.75);
  }

  TEST_CASE("short floats, complex numbers by parts and packed elements have their values") {
    CHECK(stats_of<std::uint16_t>(DType::bfloat16, {0x3f80, 0xc000}).min == -2);
    CHECK(stats_of<std::uint16_t>(DType::float16, {0x3c00, 0x7c00}).inf == 1);
    CHECK(stats_of<std::uint8_t>(DType::float8_e4m3fn, {0x7e, 0x7f}).max == 448);
    CHECK(stats_of<float>(DType::complex64, {3, 4, -7, NAN}).min == -7);
    CHECK(stats_of<float>(DType::complex64, {3, 4, -7, NAN}).nan == 1);
    // Low bits first: 6 and -6, and in the odd one the high half doesn't count.
    CHECK(stats_of<std::uint8_t>(DType::float4, {0xf7}).min == -6);
    CHECK_FALSE(stats_of<std::uint8_t>(DType::float4, {0xf7}, 1).min == -6);
    CHECK(stats_of<std::uint8_t>(DType::float4_e2m1fn_x2, {0xf7}).mean == 0);
    CHECK(stats_of<std::uint8_t>(DType::quint4x2, {0x31}).max == 3);
    // Four codes of 6 bits in three bytes: 1, 2, 4, 31.
    CHECK(stats_of<std::uint8_t>(DType::float6_e2m3, {0x81, 0x40, 0x7c}).max == 7.5);
    CHECK(stats_of<std::uint8_t>(DType::float6_e2m3, {0x81, 0x40, 0x7c}).min == 0.125);
    CHECK_FALSE(ops::is_numeric(DType::width16));
    CHECK_FALSE(ops::is_numeric(DType::opaque));
  }

  TEST_CASE("pieces that are merged are like the whole") {
    std::vector<double> values;
    for (int i = 0; i < 5000; ++i) values.push_back(std::sin(i));
    const TensorStats whole = stats_of(DType::float64, values);
    ops::StatsAccumulator left;
    ops::StatsAccumulator right;
    const ByteView bytes = std::as_bytes(std::span(values));
    left.add(DType::float64, bytes.first(8 * 1234), 1234);
    right.add(DType::float64, bytes.subspan(8 * 1234), 5000 - 1234);
    left.merge(right);
    const TensorStats merged = left.result();
    CHECK(merged.min == whole.min);
    CHECK(merged.max == whole.max);
    CHECK(*merged.mean == doctest::Approx(*whole.mean));
    CHECK(*merged.norm == doctest::Approx(*whole.norm));
    CHECK(*left.result(4).norm == doctest::Approx(2 * *whole.norm));
  }
}
