// SPDX-License-Identifier: Apache-2.0
#include "run/deal.hpp"

#include <algorithm>

namespace ckpt::run {

std::optional<Deal> deal(const std::vector<NodeState>& nodes, const DealRules& rules) {
  Deal dealt;
  std::vector<NodeState> usable;
  for (const NodeState& node : nodes) {
    if (node.trouble.empty() && node.ranks > 0 && node.ranks >= rules.least_ranks) usable.push_back(node);
  }
  std::sort(usable.begin(), usable.end(), [](const NodeState& a, const NodeState& b) { return a.name < b.name; });
  if (usable.size() > rules.most_nodes) usable.resize(rules.most_nodes);
  if (usable.size() < rules.least_nodes) return std::nullopt;
  for (const NodeState& node : usable) {
    dealt.shares.push_back({.node = node.name, .life = node.life, .first_rank = dealt.world_size, .ranks = node.ranks});
    dealt.world_size += node.ranks;
  }
  // What is more than whole groups isn't started, from the last node on.
  std::uint32_t surplus = dealt.world_size % rules.multiple_of;
  dealt.world_size -= surplus;
  while (surplus > 0) {
    Share& last = dealt.shares.back();
    const std::uint32_t taken = std::min(surplus, last.ranks);
    last.ranks -= taken;
    surplus -= taken;
    if (last.ranks == 0) dealt.shares.pop_back();
  }
  if (dealt.world_size == 0) return std::nullopt;
  return dealt;
}

}  // namespace ckpt::run
