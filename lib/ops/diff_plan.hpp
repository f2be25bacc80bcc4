// SPDX-License-Identifier: Apache-2.0
// From pairs of tensors to shares of work: views are brought into a form that's easier to read, what is known to be
// equal is left out, the rest is cut.
#pragma once

#include "core/tensor.hpp"
#include "ops/diff_tensors.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace ckpt::ops {

/// A pair of views with the same elements in another order, the same for both: the order of the addresses. Dimensions
/// that repeat all elements on both sides are left out.
struct SimplePair {
  Tensor a;
  Tensor b;
  std::uint64_t repeats = 1;
};
[[nodiscard]] SimplePair simplify(const Tensor& a, const Tensor& b);

/// Elements of one pair.
struct DiffPart {
  std::size_t pair = 0;
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  bool equal = false;    ///< the hashes say so: the values of a are those of b
  bool strided = false;  ///< the whole pair, by gathering
};

/// Parts in the order of a's files, and [first, last) of those that one worker takes at a time.
struct DiffPlan {
  std::vector<DiffPart> parts;
  std::vector<std::pair<std::size_t, std::size_t>> shares;
  std::uint64_t bytes = 0;  ///< of a that are looked at
};

/// Parts are of the simple forms of `comparisons`. With rule.whole equal parts are listed as well.
[[nodiscard]] DiffPlan plan_diff(const DiffSide& a, const DiffSide& b, const std::vector<Comparison>& comparisons,
                                 const DiffRule& rule);

}  // namespace ckpt::ops
