// SPDX-License-Identifier: Apache-2.0
// Compares pairs of tensors element by element: what the stored blocks' hashes say is equal is not read, the rest is
// read in shares that workers take, whose results are put together in one order for any number of them.
#pragma once

#include "core/tensor.hpp"
#include "ops/diff_numbers.hpp"
#include "ops/diff_side.hpp"

#include <ckpt/monitor.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ckpt::ops {

/// Two views that are compared element by element, in the order of their elements.
struct Comparison {
  std::size_t file_a = 0;
  std::size_t file_b = 0;
  const Tensor* a = nullptr;  ///< borrowed
  const Tensor* b = nullptr;
};

/// True if the elements can be paired: comparable types, bytes on both sides, and the same shape, or the same number of
/// elements that lie in order on both sides.
[[nodiscard]] bool can_compare(const Tensor& a, const Tensor& b);

struct Compared {
  std::vector<DiffNumbers> numbers;  ///< of each comparison
  std::uint64_t bytes_read = 0;
};
/// Each comparison is one that can_compare() allows.
[[nodiscard]] Compared compare_all(const DiffSide& a, const DiffSide& b, const std::vector<Comparison>& comparisons,
                                   const DiffRule& rule, unsigned jobs, Monitor& monitor);

}  // namespace ckpt::ops
