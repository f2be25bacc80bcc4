// SPDX-License-Identifier: Apache-2.0
// How the bytes of a block or a section are stored. Numbers are part of the on-disk format.
#pragma once

#include <cstdint>
#include <string_view>

namespace ckpt::codec {

enum class Codec : std::uint8_t {
  raw = 0,        ///< as they are
  zstd = 1,       ///< one zstd frame
  typed = 2,      ///< as numbers of one type, on their own or against a base of as many: codec/typed_block.hpp
  reference = 3,  ///< not at all: they're the bytes of the base
  derived = 4,    ///< as typed, against the rounding of a base that is float32, twice as many bytes
};
inline constexpr std::uint8_t codec_count = 5;

/// How many bytes of base a block of `raw_size` needs, if it has one.
[[nodiscard]] constexpr std::uint64_t base_size(Codec codec, std::uint64_t raw_size) {
  return codec == Codec::derived ? 2 * raw_size : raw_size;
}

/// Whether a block of this codec can be without a base, or with one.
[[nodiscard]] constexpr bool may_have(Codec codec, bool base) {
  switch (codec) {
    case Codec::raw:
    case Codec::zstd: return !base;
    case Codec::typed: return true;
    case Codec::reference:
    case Codec::derived: return base;
  }
  return false;
}

/// "raw", "zstd", ...
[[nodiscard]] constexpr std::string_view name_of(Codec codec) {
  switch (codec) {
    case Codec::raw: return "raw";
    case Codec::zstd: return "zstd";
    case Codec::typed: return "typed";
    case Codec::reference: return "reference";
    case Codec::derived: return "derived";
  }
  return "unknown";
}

}  // namespace ckpt::codec

namespace ckpt::format {
using codec::Codec;
using codec::codec_count;
using codec::name_of;
}  // namespace ckpt::format
