// SPDX-License-Identifier: Apache-2.0
// How the ranks of a generation are dealt to the nodes that are there. Pure.
#pragma once

#include "run/job_state.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace ckpt::run {

struct DealRules {
  std::uint32_t least_nodes = 1;
  std::uint32_t most_nodes = 1;
  std::uint32_t least_ranks = 1;  ///< a node must run, to count
  std::uint32_t multiple_of = 1;  ///< ranks of the whole job
};

struct Deal {
  std::vector<Share> shares;  ///< of nodes with one rank at least, in the order of their names
  std::uint32_t world_size = 0;
};

/// Nothing if the nodes that are ready aren't enough.
[[nodiscard]] std::optional<Deal> deal(const std::vector<NodeState>& nodes, const DealRules& rules);

}  // namespace ckpt::run
