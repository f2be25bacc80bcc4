// SPDX-License-Identifier: Apache-2.0
// What each block of a shard holds: which tensor, or which bytes between tensors, and from where on. Blocks of two
// checkpoints that hold the same pair, whatever ranks and files are called.
#pragma once

#include "codec/element.hpp"
#include "core/digest.hpp"
#include "format/catalog.hpp"

#include <cstdint>
#include <vector>

namespace ckpt::ops {

struct BlockPiece {
  /// Names that this block goes by, from the most to the least telling: its tensor or gap in a file of this path, in a
  /// file of this path but for the numbers in it, in the file of its kind at this position, in any file (a tensor
  /// alone, with its place in the whole one). Hashes of texts; blocks with one in common and of one size pair.
  std::vector<Digest> names;
  codec::Element element;
  DType dtype = DType::opaque;
  std::uint8_t lead = 0;  ///< bytes before the first element
  bool untyped = true;
};

/// One for each block, in order.
[[nodiscard]] std::vector<BlockPiece> describe_pieces(const format::Catalog& catalog);

}  // namespace ckpt::ops
