// SPDX-License-Identifier: Apache-2.0
// CRC-32 as zip, gzip and Ethernet have it: polynomial 0x04c11db7, reflected, all ones at both ends.
#pragma once

#include "core/bytes.hpp"

#include <cstdint>

namespace ckpt {

/// The checksum of what `crc` is of, followed by `data`; 0 is that of nothing.
[[nodiscard]] std::uint32_t crc32(std::uint32_t crc, ByteView data);

}  // namespace ckpt
