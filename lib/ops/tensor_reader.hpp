// SPDX-License-Identifier: Apache-2.0
// The contiguous bytes of a tensor as its user sees them: views gathered, conjugate and negative bits resolved.
#pragma once

#include "core/bytes.hpp"
#include "core/tensor.hpp"
#include "ops/stored_file.hpp"

#include <ckpt/monitor.hpp>

#include <cstddef>
#include <functional>

namespace ckpt::ops {

/// Bytes that hold a whole number of elements.
[[nodiscard]] std::size_t bytes_per_group(DType dtype);

/// Passes pieces on so that each ends between two groups of bytes, except the last.
class WholeGroups {
 public:
  using Sink = std::function<void(ByteView)>;
  WholeGroups(std::size_t group, Sink sink) : group_(group), sink_(std::move(sink)) {}
  void put(ByteView piece);
  void finish();

 private:
  std::size_t group_;
  Sink sink_;
  Bytes carry_;
};

/// Gives the bytes in order; pieces are of whole elements. The tensor has bytes and lies in the cursor's file; the
/// cursor should keep gather_blocks blocks. Large contiguous tensors are decoded in parallel. Throws Damaged, io,
/// unsupported, interrupted.
void read_tensor(BlockCursor& cursor, const Tensor& tensor, unsigned jobs, const Monitor& monitor,
                 const std::function<void(ByteView)>& consume);

}  // namespace ckpt::ops
