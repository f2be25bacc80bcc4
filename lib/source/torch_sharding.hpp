// SPDX-License-Identifier: Apache-2.0
// Which part of a global tensor a rank holds, as far as a pickled DTensor says.
#pragma once

#include "source/pickle.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace ckpt::source {

struct Sharding {
  std::vector<std::int64_t> global_shape;
  std::vector<std::int64_t> offsets;
};

/// The non-negative integers of a tuple, a list or a torch.Size; nothing if it's something else, or more than
/// max_dimensions.
inline constexpr std::size_t max_dimensions = 64;
[[nodiscard]] std::optional<std::vector<std::int64_t>> integers(const Pickle& pickle, NodeId id);

/// `spec` is a DTensorSpec. Nothing if mesh and coordinate aren't in it or don't agree with the local shape.
[[nodiscard]] std::optional<Sharding> sharding_of_spec(const Pickle& pickle, NodeId spec,
                                                       const std::vector<std::int64_t>& global_shape,
                                                       const std::vector<std::int64_t>& local_shape);

}  // namespace ckpt::source
