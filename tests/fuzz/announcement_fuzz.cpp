// SPDX-License-Identifier: Apache-2.0
// Fuzzes what a queue says of a state. The input is sealed here, or nothing but its checksum would be tried.
#include "doors/announcement.hpp"

#include <ckpt/error.hpp>

#include <cstdint>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ckpt;
  const ByteView body = std::as_bytes(std::span(data, size));
  Bytes sealed(body.begin(), body.end());
  append(sealed, xxh3_128(body).bytes);
  for (const ByteView whole : {body, ByteView(sealed)}) {
    try {
      const auto announcement = doors::decode_announcement(whole, "input");
      // What was believed can be said again, and is what a server relies on.
      (void)doors::decode_announcement(doors::encode_announcement(announcement), "again");
      if (announcement.pieces != doors::piece_count(announcement.bytes, announcement.piece_size)) std::abort();
    } catch (const Error& error) {
      if (error.code() != Errc::damaged && error.code() != Errc::unsupported) std::abort();
    }
  }
  return 0;
}
