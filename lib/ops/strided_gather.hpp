// SPDX-License-Identifier: Apache-2.0
// Makes a strided view contiguous in bounded memory.
//
// The result is made in tiles. For each tile the source is walked in the order of its own addresses, whatever the order
// of the dimensions is, and the elements are dealt out to their places in the tile. So each block is decoded about once
// a tile, also for a transposed tensor that is larger than memory.
#pragma once

#include "core/bytes.hpp"
#include "core/tensor.hpp"
#include "ops/random_bytes.hpp"

#include <ckpt/monitor.hpp>

#include <cstdint>
#include <functional>

namespace ckpt::ops {

inline constexpr std::uint64_t gather_tile = 64U << 20U;
/// Blocks that a cursor should keep for a gather.
inline constexpr std::size_t gather_blocks = 8;

/// Gives the elements of `tensor`, a view inside the cursor's file, in row-major order: pieces of at most `tile` bytes
/// and of whole elements. Elements of less than a byte are packed like the source's, in one piece; Errc::unsupported if
/// they don't fit one tile.
void gather_strided(RandomBytes& cursor, const Tensor& tensor, const Monitor& monitor,
                    const std::function<void(ByteView)>& consume, std::uint64_t tile = gather_tile);

inline void gather_strided(BlockCursor& cursor, const Tensor& tensor, const Monitor& monitor,
                           const std::function<void(ByteView)>& consume, std::uint64_t tile = gather_tile) {
  CursorBytes bytes(cursor);
  gather_strided(bytes, tensor, monitor, consume, tile);
}

}  // namespace ckpt::ops
