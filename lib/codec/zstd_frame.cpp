// SPDX-License-Identifier: Apache-2.0
#include "codec/zstd_frame.hpp"

#include <ckpt/error.hpp>

#include <zstd.h>
#include <string>

namespace ckpt::codec {

Bytes zstd_compress(ByteView data, int level) {
  Bytes out(ZSTD_compressBound(data.size()));
  const std::size_t size = ZSTD_compress(out.data(), out.size(), data.data(), data.size(), level);
  if (ZSTD_isError(size) != 0) throw Error(Errc::io, std::string("zstd: ") + ZSTD_getErrorName(size));
  out.resize(size);
  return out;
}

bool zstd_decompress(ByteView frame, std::span<std::byte> into) {
  const std::size_t size = ZSTD_decompress(into.data(), into.size(), frame.data(), frame.size());
  return ZSTD_isError(size) == 0 && size == into.size();
}

}  // namespace ckpt::codec
