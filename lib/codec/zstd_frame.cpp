// SPDX-License-Identifier: Apache-2.0
#include "codec/zstd_frame.hpp"

#include "os/aligned_buffer.hpp"

#include <ckpt/error.hpp>

#include <zstd.h>
#include <new>
#include <string>

namespace ckpt::codec {

struct ZstdCompressor::State {
  struct Free {
    void operator()(ZSTD_CCtx* c) const { ZSTD_freeCCtx(c); }
  };
  std::unique_ptr<ZSTD_CCtx, Free> context{ZSTD_createCCtx()};
  os::AlignedBuffer room;
};

ZstdCompressor::ZstdCompressor() : state_(std::make_unique<State>()) {
  if (state_->context == nullptr) throw std::bad_alloc();
}
ZstdCompressor::~ZstdCompressor() = default;
ZstdCompressor::ZstdCompressor(ZstdCompressor&&) noexcept = default;
ZstdCompressor& ZstdCompressor::operator=(ZstdCompressor&&) noexcept = default;

ByteView ZstdCompressor::compress(ByteView data, int level) {
  os::AlignedBuffer& room = state_->room;
  room.reserve(ZSTD_compressBound(data.size()));
  const std::size_t size =
      ZSTD_compressCCtx(state_->context.get(), room.data(), room.capacity(), data.data(), data.size(), level);
  if (ZSTD_isError(size) != 0) throw Error(Errc::io, std::string("zstd: ") + ZSTD_getErrorName(size));
  return {room.data(), size};
}

Bytes zstd_compress(ByteView data, int level) {
  ZstdCompressor compressor;
  const ByteView frame = compressor.compress(data, level);
  return {frame.begin(), frame.end()};
}

bool zstd_decompress(ByteView frame, std::span<std::byte> into) {
  const std::size_t size = ZSTD_decompress(into.data(), into.size(), frame.data(), frame.size());
  return ZSTD_isError(size) == 0 && size == into.size();
}

}  // namespace ckpt::codec
