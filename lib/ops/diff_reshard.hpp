// SPDX-License-Identifier: Apache-2.0
// Tensors that both sides hold all of and cut in different ways: into parts of other ranks' numbers, or on one side not
// at all.
#pragma once

#include "core/tensor.hpp"
#include "ops/diff_side.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace ckpt::ops {

/// What both sides hold of the same elements.
struct CommonBox {
  std::size_t file_a = 0;
  std::size_t file_b = 0;
  Tensor a;
  Tensor b;
};

struct ReshardedTensor {
  std::string name;
  std::vector<std::int64_t> shape;  ///< of the whole
  DType dtype_a = DType::opaque;
  DType dtype_b = DType::opaque;
  std::size_t file_a = 0;  ///< that of the first part
  std::size_t file_b = 0;
  std::vector<CommonBox> boxes;  ///< each element is in one of them
};

/// Which tensor of which file is a part of one: by file and tensor, indexes into Resharding::tensors.
using ReshardedParts = std::vector<std::vector<std::optional<std::size_t>>>;

struct Resharding {
  std::vector<ReshardedTensor> tensors;
  ReshardedParts parts_a;
  ReshardedParts parts_b;
};

/// Tensors are the same by name and by their files' paths without numbers, else by name where that's unambiguous. Those
/// that aren't whole on either side, or of different shapes, are none of it.
[[nodiscard]] Resharding find_resharded(const std::vector<SideFile>& a, const std::vector<SideFile>& b);

}  // namespace ckpt::ops
