// SPDX-License-Identifier: Apache-2.0
// The tree of modules that a picture shows: small enough to be seen, whatever the number of tensors is.
#pragma once

#include <ckpt/diff.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ckpt::ops {

struct PlotNode {
  std::string key;    ///< of the name: several joined by dots where a module has one child only
  std::string name;   ///< in full
  std::string about;  ///< of one tensor: type and shape; else empty
  std::uint64_t tensors = 0, differing = 0, added = 0, removed = 0;
  std::uint64_t elements = 0;
  bool odd = false;  ///< the only tensor is reshaped or retyped and has no numbers, or raw bits changed
  DiffNumbers numbers;
  std::uint64_t weighed = 0;       ///< elements whose relative change is known
  double weighed_squares = 0;      ///< of the relative changes, each times its tensor's elements
  std::vector<PlotNode> children;  ///< in the order in which they're first met

  [[nodiscard]] bool is_leaf() const { return children.empty(); }
};

/// Of very many the least changed ones are drawn as one.
[[nodiscard]] PlotNode make_plot_tree(const DiffReport& report);

/// Of one tensor |b - a| / |a|, with 2-norms over all elements. Where the report knows |a| of the changed elements
/// only, the others are taken to be as large on average. Nothing if there are no numbers.
[[nodiscard]] std::optional<double> relative_change(const TensorDiff& tensor, bool whole);

/// Of several the root mean square of theirs, each element counting the same: moments and counters are of other orders
/// of magnitude than weights, so their differences don't add up. Nothing if nothing has changed.
[[nodiscard]] std::optional<double> relative_change(const PlotNode& node);

}  // namespace ckpt::ops
