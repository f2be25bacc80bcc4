// SPDX-License-Identifier: Apache-2.0
// What two files of one kind hold besides tensors: the plain data of their pickles, JSON, metadata, records.
#pragma once

#include "ops/diff_pairs.hpp"
#include "ops/diff_side.hpp"

#include <ckpt/diff.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ckpt::ops {

struct FileValues {
  std::vector<ValueDiff> values;
  std::uint64_t more = 0;  ///< that aren't listed
  bool as_bytes = false;   ///< nothing can be said but by the files' bytes
};

/// `a` and `b` are files, not links. Files of different kinds have no values in common, and none are given; of those
/// the bytes count where one of them holds no tensors.
[[nodiscard]] FileValues compare_file_values(const DiffSide& a, std::size_t file_a, const DiffSide& b,
                                             std::size_t file_b);

/// True if the blocks of two stored files say that their bytes are the same.
[[nodiscard]] bool have_equal_blocks(const DiffSide& a, std::size_t file_a, const DiffSide& b, std::size_t file_b);

}  // namespace ckpt::ops
