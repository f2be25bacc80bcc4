// SPDX-License-Identifier: Apache-2.0
// One stream of bytes of a typed block, a plane of its numbers mostly, in the cheapest form.
#pragma once

#include "core/bytes.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace ckpt::codec {

/// How hard an encoder tries.
enum class Effort : std::uint8_t {
  fast,  ///< Huffman codes alone where bytes are skewed; matches only where they're obvious
  best,  ///< also looks for matches, and takes what is smaller
};

/// How a stream is stored. Numbers are part of the on-disk format.
enum class StreamMethod : std::uint8_t {
  raw = 0,       ///< as it is
  constant = 1,  ///< one byte, which all are
  zstd = 2,      ///< one zstd frame
};

/// In front of each stream: the method (1 byte) and the stored size (4 bytes).
inline constexpr std::size_t stream_head = 5;

/// Encodes streams; keeps zstd's tables between them. Used from one thread at a time.
class StreamEncoder {
 public:
  StreamEncoder();
  ~StreamEncoder();
  StreamEncoder(StreamEncoder&&) noexcept;
  StreamEncoder& operator=(StreamEncoder&&) noexcept;

  /// Appends head and stored bytes to `out`.
  void encode(ByteView stream, Effort effort, Bytes& out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Decodes streams. Used from one thread at a time.
class StreamDecoder {
 public:
  StreamDecoder();
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;

  /// Takes one stream from `in` and fills `into`; false if there's none that fits.
  [[nodiscard]] bool decode(ByteReader& in, std::span<std::byte> into);
  /// The same without a copy where the stream is stored raw: a view into `in`, else into `scratch`, which has room for
  /// `size` bytes. Empty if there's none that fits; `size` isn't zero.
  [[nodiscard]] ByteView view(ByteReader& in, std::size_t size, std::byte* scratch);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ckpt::codec
