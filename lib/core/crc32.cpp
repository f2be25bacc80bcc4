// SPDX-License-Identifier: Apache-2.0
// Eight tables, so that eight bytes are taken at a time: "slicing by 8", M. Kounavis and F. Berry, 2005.
#include "core/crc32.hpp"

#include <array>

namespace ckpt {
namespace {

constexpr std::uint32_t polynomial = 0xedb88320U;
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? polynomial : 0);
    tables[0][byte] = crc;
  }
  for (std::size_t t = 1; t < 8; ++t) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[t - 1][byte];
      tables[t][byte] = (before >> 8U) ^ tables[0][before & 0xffU];
    }
  }
  return tables;
}
constexpr Tables tables = make_tables();

}  // namespace

std::uint32_t crc32(std::uint32_t crc, ByteView data) {
  crc = ~crc;
  const std::byte* at = data.data();
  std::size_t left = data.size();
  for (; left >= 8; left -= 8, at += 8) {
    const std::uint64_t word = load_le<std::uint64_t>(at) ^ crc;
    crc = 0;
    for (std::size_t i = 0; i < 8; ++i) crc ^= tables[7 - i][(word >> (8 * i)) & 0xffU];
  }
  for (; left > 0; --left, ++at) crc = (crc >> 8U) ^ tables[0][(crc ^ static_cast<std::uint32_t>(*at)) & 0xffU];
  return ~crc;
}

// Appending n zero bytes multiplies by x^8n modulo the polynomial, in arithmetic over GF(2).
std::uint32_t crc32_of_both(std::uint32_t a, std::uint32_t b, std::uint64_t size_of_b) {
  const auto times = [](std::uint32_t p, std::uint32_t q) {
    std::uint32_t product = 0;
    for (std::uint32_t bit = 1U << 31U; bit != 0; bit >>= 1U) {
      if ((p & bit) != 0) product ^= q;
      q = (q & 1U) != 0 ? (q >> 1U) ^ polynomial : q >> 1U;
    }
    return product;
  };
  std::uint32_t power = 1U << 23U;  // x^8
  for (std::uint64_t n = size_of_b; n != 0; n >>= 1U) {
    if ((n & 1U) != 0) a = times(power, a);
    power = times(power, power);
  }
  return a ^ b;
}

}  // namespace ckpt
