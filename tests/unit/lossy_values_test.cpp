// SPDX-License-Identifier: Apache-2.0
// Numbers that lose bits: near what they were, few bits in use, and what isn't finite untouched. And zip's checksum.
#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/crc32.hpp"
#include "core/float_formats.hpp"
#include "ops/lossy_values.hpp"

using namespace ckpt;
using namespace ckpt::ops;

namespace {

Bytes floats(const std::vector<float>& values) {
  Bytes bytes;
  for (const float value : values) append_le(bytes, std::bit_cast<std::uint32_t>(value));
  return bytes;
}

std::vector<float> values_of(const Bytes& bytes) {
  std::vector<float> values;
  for (std::size_t at = 0; at < bytes.size(); at += 4) {
    values.push_back(std::bit_cast<float>(load_le<std::uint32_t>(bytes.data() + at)));
  }
  return values;
}

std::vector<float> random_values(std::size_t count) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 0.02F);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

}  // namespace

TEST_SUITE("lossy values") {
  TEST_CASE("the checksum is zip's, however the data come") {
    CHECK(crc32(0, as_bytes("123456789")) == 0xcbf43926U);
    CHECK(crc32(0, {}) == 0);
    const Bytes data = floats(random_values(1000));
    for (const std::size_t cut : {0U, 1U, 7U, 8U, 9U, 2000U, 3999U}) {
      CHECK(crc32(crc32(0, ByteView(data).first(cut)), ByteView(data).subspan(cut)) == crc32(0, data));
    }
  }

  TEST_CASE("each group is within half a step of its scale, and said again nothing changes") {
    const std::vector<float> was = random_values(1000);
    struct Case {
      Quantization to;
      float steps;
    };
    for (const Case& c : {Case{Quantization::int8, 127}, Case{Quantization::int4, 7}}) {
      Bytes bytes = floats(was);
      quantize(DType::float32, c.to, bytes);
      const std::vector<float> now = values_of(bytes);
      for (std::size_t group = 0; group < was.size(); group += quantized_group) {
        float largest = 0;
        const std::size_t end = std::min(group + quantized_group, was.size());
        for (std::size_t i = group; i < end; ++i) largest = std::max(largest, std::abs(was[i]));
        // The scale is the next power of two, so at most twice what it must be.
        for (std::size_t i = group; i < end; ++i) CHECK(std::abs(now[i] - was[i]) <= largest / c.steps);
      }
      const Bytes once = bytes;
      quantize(DType::float32, c.to, bytes);
      CHECK(bytes == once);
    }
  }

  TEST_CASE("what comes out in eight bits has no more than seven in its fraction") {
    for (const Quantization to : {Quantization::int8, Quantization::int4, Quantization::fp8, Quantization::bf16}) {
      Bytes bytes = floats(random_values(1000));
      quantize(DType::float32, to, bytes);
      for (std::size_t at = 0; at < bytes.size(); at += 4) {
        CHECK((load_le<std::uint32_t>(bytes.data() + at) & 0xffffU) == 0);
      }
    }
  }

  TEST_CASE("rounding to bfloat16 is to nearest, ties to even") {
    Bytes bytes = floats({1.00390625F, 1.01171875F, 1.004F, -3.0F, 0.0F});
    quantize(DType::float32, Quantization::bf16, bytes);
    CHECK(values_of(bytes) == std::vector<float>{1.0F, 1.015625F, 1.0078125F, -3.0F, 0.0F});
  }

  TEST_CASE("NaN, infinities and zeros stay, and large and tiny groups work") {
    const float infinity = std::numeric_limits<float>::infinity();
    const float largest = std::numeric_limits<float>::max();
    const float tiny = std::numeric_limits<float>::denorm_min();
    for (const Quantization to : {Quantization::int8, Quantization::int4, Quantization::fp8, Quantization::bf16}) {
      Bytes bytes = floats({std::nanf(""), infinity, -infinity, 0.0F, 1.0F});
      quantize(DType::float32, to, bytes);
      const std::vector<float> now = values_of(bytes);
      CHECK(std::isnan(now[0]));
      CHECK(now[1] == infinity);
      CHECK(now[2] == -infinity);
      CHECK(now[3] == 0);
      CHECK(now[4] == 1);
      for (const float extreme : {largest, -largest, tiny}) {
        Bytes one = floats({extreme, 0});
        quantize(DType::float32, to, one);
        CHECK(std::isfinite(values_of(one)[0]));
      }
      quantize(DType::float32, to, {});
    }
  }

  TEST_CASE("every float16 and bfloat16 survives a rounding that has room for it") {
    for (const DType dtype : {DType::float16, DType::bfloat16}) {
      for (std::uint32_t code = 0; code < 0x10000; ++code) {
        Bytes one;
        append_le(one, static_cast<std::uint16_t>(code));
        const Bytes was = one;
        quantize(dtype, Quantization::bf16, one);
        if (dtype == DType::bfloat16) {
          CHECK(one == was);
          continue;
        }
        const float before = decode_float16(load_le<std::uint16_t>(was.data()));
        const float after = decode_float16(load_le<std::uint16_t>(one.data()));
        if (!std::isfinite(before)) {
          CHECK(one == was);
        } else {
          CHECK(std::abs(after - before) <= std::abs(before) / 256);
        }
      }
    }
  }

  TEST_CASE("magnitudes are ordered as numbers are, and small ones become zero") {
    Bytes bytes = floats({0.5F, -0.25F, 2.0F, -4.0F, std::nanf(""), -0.0F});
    const auto key = [&](std::size_t i) { return magnitude_key(4, bytes.data() + 4 * i); };
    CHECK(key(5) < key(1));
    CHECK(key(1) < key(0));
    CHECK(key(0) < key(2));
    CHECK(key(2) < key(3));
    CHECK(key(3) < key(4));
    make_small_ones_zero(DType::float32, key(2), bytes);
    const std::vector<float> now = values_of(bytes);
    CHECK(now[0] == 0);
    CHECK(now[1] == 0);
    CHECK(now[2] == 2);
    CHECK(now[3] == -4);
    CHECK(std::isnan(now[4]));
  }

  TEST_CASE("errors are those of finite values") {
    const Bytes was = floats({1, 2, std::numeric_limits<float>::infinity(), 4});
    const Bytes now = floats({1, 2.5F, 0, 3});
    const ValueError error = difference(DType::float32, was, now);
    CHECK(error.count == 4);
    CHECK(error.largest == 1);
    CHECK(error.sum == 1.5);
  }
}
