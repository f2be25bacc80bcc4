// SPDX-License-Identifier: Apache-2.0
// MD5 (RFC 1321), to compare with what object stores tell of what they hold. Nothing here relies on it against anyone.
#pragma once

#include "core/bytes.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace ckpt {

/// MD5 of bytes that come in pieces. Not thread-safe.
class Md5 {
 public:
  void update(ByteView data);
  /// 32 lower-case hex digits. Nothing may be added after it.
  [[nodiscard]] std::string hex();

 private:
  static constexpr std::size_t chunk = 64;
  void digest_chunk(const std::byte* data);

  std::array<std::uint32_t, 4> state_ = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
  std::uint64_t size_ = 0;
  std::array<std::byte, chunk> held_{};  ///< the first size_ % chunk bytes of it
};

}  // namespace ckpt
