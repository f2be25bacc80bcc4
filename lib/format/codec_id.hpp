// SPDX-License-Identifier: Apache-2.0
// How the bytes of a block or a section are stored. Numbers are part of the on-disk format.
#pragma once

#include <cstdint>

namespace ckpt::format {

enum class Codec : std::uint8_t {
  raw = 0,   ///< as they are
  zstd = 1,  ///< one zstd frame
};
inline constexpr std::uint8_t codec_count = 2;

}  // namespace ckpt::format
