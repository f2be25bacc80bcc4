// SPDX-License-Identifier: Apache-2.0
// Plain zstd frames of a known size: `zstd -d` reads each of them.
#pragma once

#include "core/bytes.hpp"

#include <cstdint>
#include <memory>
#include <span>

namespace ckpt::codec {

/// One frame that holds `data`.
[[nodiscard]] Bytes zstd_compress(ByteView data, int level);

/// The same, with tables and room that are kept. Used from one thread at a time.
class ZstdCompressor {
 public:
  ZstdCompressor();
  ~ZstdCompressor();
  ZstdCompressor(ZstdCompressor&&) noexcept;
  ZstdCompressor& operator=(ZstdCompressor&&) noexcept;

  /// A view until the next call.
  [[nodiscard]] ByteView compress(ByteView data, int level);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Fills `into` from one frame; false if the frame is damaged or its content has another size.
[[nodiscard]] bool zstd_decompress(ByteView frame, std::span<std::byte> into);

}  // namespace ckpt::codec
