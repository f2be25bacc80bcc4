// SPDX-License-Identifier: Apache-2.0
// CRC-32 as zip and Python's zlib.crc32 have it (ISO-HDLC: polynomial 0x04c11db7, reflected, all ones at both ends), by
// one table: D. Sarwate, "Computation of cyclic redundancy checks via table look-up", CACM 31(8), 1988. It chooses who
// writes a tensor that all ranks hold, and the Python module chooses by the same.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ckpt::torch {

[[nodiscard]] constexpr std::uint32_t crc32(std::string_view text) {
  constexpr auto table = [] {
    std::array<std::uint32_t, 256> made{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      std::uint32_t crc = byte;
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? 0xedb88320U : 0);
      made[byte] = crc;
    }
    return made;
  }();
  std::uint32_t crc = ~0U;
  for (const char c : text) crc = (crc >> 8U) ^ table[(crc ^ static_cast<unsigned char>(c)) & 0xffU];
  return ~crc;
}
static_assert(crc32("123456789") == 0xcbf43926U);

}  // namespace ckpt::torch
