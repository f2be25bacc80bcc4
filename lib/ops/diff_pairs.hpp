// SPDX-License-Identifier: Apache-2.0
// Which file of one side stands for which of the other, and which tensor for which.
#pragma once

#include "ops/diff_reshard.hpp"
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
/// On which side a tensor has no partner, and is held against one of the other side that has one already.
enum class Replica { none, in_a, in_b };

struct TensorPair {
  std::optional<TensorPlace> a;
  std::optional<TensorPlace> b;
  Replica replica = Replica::none;
  std::optional<std::size_t> resharded;  ///< one of Resharding::tensors, with all its parts, instead of a and b
};

/// What isn't resharded by name and global offsets within a pair of files, then wherever they are; then as a replica by
/// these and the file's path without its numbers. In the order of a, then what b alone has.
[[nodiscard]] std::vector<TensorPair> pair_tensors(const std::vector<SideFile>& a, const std::vector<SideFile>& b,
                                                   const std::vector<FilePair>& files, const Resharding& resharding);

}  // namespace ckpt::ops
