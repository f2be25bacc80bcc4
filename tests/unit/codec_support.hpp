// SPDX-License-Identifier: Apache-2.0
// Numbers to encode: random bits, with all that is special about floating point among them.
#pragma once

#include "codec/element.hpp"
#include "core/bytes.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace codec_test {

using ckpt::Bytes;
using ckpt::ByteView;

inline Bytes noise(std::mt19937_64& rng, std::size_t size) {
  Bytes bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng());
  return bytes;
}

/// Random bit patterns with zeros, infinities, NaN, denormals and their negatives strewn in.
template <class T>
Bytes patterns(std::mt19937_64& rng, std::size_t count) {
  constexpr unsigned bits = sizeof(T) * 8;
  constexpr T sign = static_cast<T>(T{1} << (bits - 1));
  std::vector<T> values(count);
  for (T& value : values) {
    const auto random = static_cast<T>(rng());
    switch (rng() % 10) {
      case 0: value = 0; break;
      case 1: value = sign; break;                         // -0.0
      case 2: value = static_cast<T>(random & 7U); break;  // denormals
      case 3: value = static_cast<T>(sign | (random & 7U)); break;
      case 4: value = static_cast<T>(~sign); break;  // a NaN
      case 5: value = static_cast<T>(sizeof(T) == 4 ? 0x7f800000U : 0x7f80U); break;
      default: value = random; break;
    }
  }
  Bytes bytes(count * sizeof(T));
  if (count > 0) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// Weights as training leaves them: normal, with a few magnitudes.
inline std::vector<float> weights(std::mt19937_64& rng, std::size_t count) {
  std::normal_distribution<float> normal(0, 0.02F);
  std::vector<float> values(count);
  for (float& value : values) value = normal(rng);
  return values;
}
inline std::vector<float> moved(std::mt19937_64& rng, std::vector<float> values, float by) {
  std::normal_distribution<float> normal(0, by);
  for (float& value : values) value += normal(rng);
  return values;
}
template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}
inline std::vector<std::uint16_t> as_bfloat16(const std::vector<float>& values) {
  std::vector<std::uint16_t> rounded;
  for (const float value : values) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    rounded.push_back(
        static_cast<std::uint16_t>(std::isnan(value) ? 0x7fc0U : (u + 0x7fffU + ((u >> 16U) & 1U)) >> 16U));
  }
  return rounded;
}

}  // namespace codec_test
