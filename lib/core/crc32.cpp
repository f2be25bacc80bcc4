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

}  // namespace ckpt
