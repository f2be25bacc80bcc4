// SPDX-License-Identifier: Apache-2.0
// Reads what a file holds of a tensor into strided memory, as tasks that several threads can share, and compares what
// two files hold.
#pragma once

#include "ops/block_cache.hpp"
#include "ops/global_index.hpp"

#include <ckpt/monitor.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace ckpt::ops {

/// A view on some elements of a file.
struct FileView {
  FileOfShard file;
  Tensor tensor;
};

/// What a part holds of a box of its whole. The box lies in the part's.
[[nodiscard]] FileView view_on(const TensorPart& part, const Box& box);

/// Adds what has to be done to bring the elements of a view to `into`, where element i of dimension d lies at
/// i * strides[d] elements from it. Tasks may run in any order, and at a time; they throw Damaged, interrupted.
/// `cache` and `monitor` outlive them. A view of elements that are no whole bytes is contiguous, and so is its target.
using Tasks = std::vector<std::function<void()>>;
void plan_read(BlockCache& cache, const FileView& view, std::span<const std::int64_t> strides, std::byte* into,
               const Monitor& monitor, Tasks& tasks);

/// True if two views of one type and shape show the same values, to the bit. Reads them only where the blocks' hashes
/// don't say so. Throws Damaged, interrupted.
[[nodiscard]] bool have_same_values(BlockCache& cache, const FileView& a, const FileView& b, const Monitor& monitor);

}  // namespace ckpt::ops
