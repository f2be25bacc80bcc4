// SPDX-License-Identifier: Apache-2.0
// Which file of one side stands for which of the other, and which tensor for which.
#pragma once

#include "ops/diff_side.hpp"

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace ckpt::ops {

/// Indexes into the files of the two sides.
struct FilePair {
  std::optional<std::size_t> a;
  std::optional<std::size_t> b;
};

/// By rank and path; by path; by path with its numbers left out, where that's unambiguous; by position among those of
/// the same kind; by position among those that hold tensors. In the order of a, then what b alone has. Links pair with
/// links of the same path only.
[[nodiscard]] std::vector<FilePair> pair_files(const std::vector<SideFile>& a, const std::vector<SideFile>& b);

struct TensorPlace {
  std::size_t file = 0;
  std::size_t tensor = 0;
};
struct TensorPair {
  std::optional<TensorPlace> a;
  std::optional<TensorPlace> b;
};

/// By name and global offsets within a pair of files, then wherever they are. In the order of a, then what b alone has.
[[nodiscard]] std::vector<TensorPair> pair_tensors(const std::vector<SideFile>& a, const std::vector<SideFile>& b,
                                                   const std::vector<FilePair>& files);

}  // namespace ckpt::ops
