// SPDX-License-Identifier: Apache-2.0
// Counts and sums over pairs of elements that come in pieces.
#pragma once

#include "core/bytes.hpp"
#include "core/tensor.hpp"

#include <ckpt/diff.hpp>

#include <cstdint>
#include <optional>

namespace ckpt::ops {

/// Which elements count, and for what.
struct DiffRule {
  std::optional<Tolerance> tolerance;
  bool whole = false;
};

/// True if elements of the two types can be compared: by value, or by their bits if the type is the same.
[[nodiscard]] bool are_comparable(DType a, DType b);
/// True if the comparison is one of values.
[[nodiscard]] bool have_values(DType a, DType b);

/// Adds `count` pairs of whole elements, which both views hold, to all but `elements`. The types are comparable.
void add_pairs(const DiffRule& rule, DType type_a, ByteView a, DType type_b, ByteView b, std::uint64_t count,
               DiffNumbers& to);

}  // namespace ckpt::ops
