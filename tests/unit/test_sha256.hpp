// SPDX-License-Identifier: Apache-2.0
// SHA-256 for the tests alone: expected.json speaks it. Written from FIPS 180-4; plain rather than fast.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace source_test {

inline std::string sha256_hex(std::string_view message) {
  // The constants are the first bits of the fractions of the cube and square roots of the first primes, computed
  // in integers so that no table can be mistyped.
  const auto root_bits = [](std::uint64_t prime, unsigned degree) {
    __extension__ using Wide = unsigned __int128;
    std::uint64_t low = 0;
    std::uint64_t high = std::uint64_t{1} << 40U;
    const auto too_large = [&](std::uint64_t x) {
      // Compares x / 2^32 with the root.
      return degree == 2 ? Wide{x} * x > (Wide{prime} << 64U) : Wide{x} * x * x > (Wide{prime} << 96U);
    };
    while (high - low > 1) {
      const std::uint64_t middle = (low + high) / 2;
      (too_large(middle) ? high : low) = middle;
    }
    return static_cast<std::uint32_t>(low);
  };
  std::array<std::uint32_t, 64> k{};
  std::array<std::uint32_t, 8> h{};
  std::size_t found = 0;
  for (std::uint64_t n = 2; found < 64; ++n) {
    bool prime = true;
    for (std::uint64_t d = 2; d * d <= n; ++d) prime = prime && n % d != 0;
    if (!prime) continue;
    if (found < 8) h[found] = root_bits(n, 2);
    k[found++] = root_bits(n, 3);
  }

  std::string padded(message);
  padded.push_back('\x80');
  while (padded.size() % 64 != 56) padded.push_back('\0');
  const std::uint64_t bits = std::uint64_t{message.size()} * 8;
  for (unsigned shift = 64; shift > 0; shift -= 8) padded.push_back(static_cast<char>(bits >> (shift - 8) & 0xffU));

  for (std::size_t block = 0; block < padded.size(); block += 64) {
    std::array<std::uint32_t, 64> w{};
    for (std::size_t i = 0; i < 16; ++i) {
      for (std::size_t j = 0; j < 4; ++j) w[i] = w[i] << 8U | static_cast<unsigned char>(padded[block + 4 * i + j]);
    }
    for (std::size_t i = 16; i < 64; ++i) {
      const std::uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3U);
      const std::uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10U);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    auto v = h;
    for (std::size_t i = 0; i < 64; ++i) {
      const std::uint32_t s1 = std::rotr(v[4], 6) ^ std::rotr(v[4], 11) ^ std::rotr(v[4], 25);
      const std::uint32_t t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + k[i] + w[i];
      const std::uint32_t s0 = std::rotr(v[0], 2) ^ std::rotr(v[0], 13) ^ std::rotr(v[0], 22);
      const std::uint32_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
      v = {t1 + t2, v[0], v[1], v[2], v[3] + t1, v[4], v[5], v[6]};
    }
    for (std::size_t i = 0; i < 8; ++i) h[i] += v[i];
  }

  constexpr std::string_view digits = "0123456789abcdef";
  std::string hex;
  for (const std::uint32_t word : h) {
    for (unsigned shift = 32; shift > 0; shift -= 4) hex.push_back(digits[word >> (shift - 4) & 0xfU]);
  }
  return hex;
}

}  // namespace source_test
