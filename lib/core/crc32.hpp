// SPDX-License-Identifier: Apache-2.0
// CRC-32 as zip, gzip and Ethernet have it: polynomial 0x04c11db7, reflected, all ones at both ends.
#pragma once

#include "core/bytes.hpp"

#include <cstdint>

namespace ckpt {

/// The checksum of what `crc` is of, followed by `data`; 0 is that of nothing.
[[nodiscard]] std::uint32_t crc32(std::uint32_t crc, ByteView data);

/// The same, without the processor's help: what the fast one is checked against.
[[nodiscard]] std::uint32_t crc32_by_tables(std::uint32_t crc, ByteView data);

/// The checksum of a followed by b, from those of both and b's size.
[[nodiscard]] std::uint32_t crc32_of_both(std::uint32_t a, std::uint32_t b, std::uint64_t size_of_b);

}  // namespace ckpt
