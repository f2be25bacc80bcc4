// SPDX-License-Identifier: Apache-2.0
// Fuzzes the payloads of typed blocks. The first byte says whether there's a base, and whether the block is derived;
// the next three how many raw bytes there must be.
#include "codec/typed_block.hpp"

#include <cstdint>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ckpt;
  if (size < 4) return 0;
  const bool derived = (data[0] & 2U) != 0;
  const bool has_base = derived || (data[0] & 1U) != 0;
  const std::size_t raw_size = (data[1] | std::size_t{data[2]} << 8U | std::size_t{data[3]} << 16U) % (1U << 20U);
  Bytes raw(raw_size);
  Bytes base(has_base ? (derived ? 2 * raw_size : raw_size) : 0);
  for (std::size_t i = 0; i < base.size(); ++i) base[i] = static_cast<std::byte>(i * 0x9e3779b1U >> 13U);
  const ByteView payload = std::as_bytes(std::span(data + 4, size - 4));

  codec::TypedDecoder decoder;
  const auto decode = [&](Bytes& into) {
    return derived ? decoder.decode_derived(payload, base, into) : decoder.decode(payload, base, into);
  };
  if (!decode(raw)) return 0;
  // What can be decoded is decoded the same again, whatever is left in the buffers.
  Bytes again(raw_size, std::byte{0xa5});
  if (!decode(again) || again != raw) std::abort();
  return 0;
}
