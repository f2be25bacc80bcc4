// SPDX-License-Identifier: Apache-2.0
#include "ops/sync_plan.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <map>
#include <set>

namespace ckpt::ops {
namespace {

using format::BaseCheckpoint;
using transport::Inventory;
using transport::ReplicaCheckpoint;
using transport::ReplicaShard;

/// One side's checkpoints by what they are.
struct Lookup {
  std::map<BaseCheckpoint, const ReplicaCheckpoint*> committed, retired;
  std::map<std::uint64_t, const ReplicaCheckpoint*> by_step;  ///< committed ones

  explicit Lookup(const Inventory& inventory) {
    for (const ReplicaCheckpoint& entry : inventory.checkpoints) {
      (entry.retired ? retired : committed).emplace(entry.identity, &entry);
      if (!entry.retired) by_step.emplace(entry.identity.step, &entry);
    }
  }
  [[nodiscard]] bool has(const BaseCheckpoint& identity) const {
    return committed.contains(identity) || retired.contains(identity);
  }
  [[nodiscard]] const ReplicaCheckpoint* find(const BaseCheckpoint& identity) const {
    const auto found = committed.find(identity);
    if (found != committed.end()) return found->second;
    const auto other = retired.find(identity);
    return other == retired.end() ? nullptr : other->second;
  }
};

class SyncPlanner {
 public:
  SyncPlanner(const SyncRequest& request, const Inventory& source, const Inventory& destination, std::string name)
      : request_(request),
        source_(source),
        there_(destination),
        destination_(destination),
        name_(std::move(name)),
        here_(source) {}

  SyncPlan run() {
    for (const ReplicaCheckpoint& entry : request_.chosen) {
      if (entry.retired && there_.committed.contains(entry.identity) && !here_.committed.contains(entry.identity))
        retire(entry.identity);
    }
    for (const ReplicaCheckpoint& entry : request_.chosen) (void)add(entry, 0);
    if (request_.whole) {
      for (const std::uint64_t step : source_.unreadable)
        plan_.conflicts.push_back("step " + std::to_string(step) + " can't be read at the source");
    }
    if (request_.gather) add_shards();
    if (request_.remove && request_.whole) add_removals();
    return std::move(plan_);
  }

 private:
  /// A cycle of bases can't come from a sound store; it mustn't make this one recurse for ever.
  static constexpr int deepest = 4096;

  void retire(const BaseCheckpoint& identity) {
    plan_.retire.push_back(identity);
    leaves_.insert(identity.step);
  }

  /// False if it can't be there; why is among the conflicts.
  bool add(const ReplicaCheckpoint& entry, int depth) {
    const bool is_there = entry.retired ? there_.has(entry.identity) : there_.committed.contains(entry.identity);
    if (is_there) return true;
    const auto [known, is_new] = added_.emplace(std::pair(entry.identity, entry.retired), false);
    if (!is_new) return known->second;
    if (depth > deepest) throw Error(Errc::malformed, "checkpoints depend on each other in a circle");
    if (!entry.retired && !is_free(entry)) return false;
    for (const BaseCheckpoint& base : entry.bases) {
      if (there_.has(base)) continue;
      const ReplicaCheckpoint* found = here_.find(base);
      if (found != nullptr && add(*found, depth + 1)) continue;
      plan_.conflicts.push_back("step " + std::to_string(entry.identity.step) + " depends on step " +
                                std::to_string(base.step) +
                                (found == nullptr ? ", which isn't at the source any more" : ", which can't be sent"));
      return false;
    }
    known->second = true;
    plan_.send.push_back(entry);
    if (depth > 0 && !is_chosen(entry)) plan_.only_as_bases.push_back(entry.identity);
    return true;
  }

  [[nodiscard]] bool is_chosen(const ReplicaCheckpoint& entry) const {
    return request_.whole || std::any_of(request_.chosen.begin(), request_.chosen.end(),
                                         [&](const auto& chosen) { return chosen.identity == entry.identity; });
  }

  bool is_free(const ReplicaCheckpoint& entry) {
    const auto taken = there_.by_step.find(entry.identity.step);
    if (taken == there_.by_step.end() || leaves_.contains(entry.identity.step) || request_.replace) return true;
    plan_.conflicts.push_back("'" + name_ + "@" + std::to_string(entry.identity.step) + "' is " +
                              to_hex(taken->second->identity.id) + " there, and " + to_hex(entry.identity.id) +
                              " at the source");
    return false;
  }

  void add_shards() {
    std::map<std::pair<store::SetKey, std::uint32_t>, Digest> there;
    std::map<store::SetKey, std::uint32_t> counts;
    for (const ReplicaShard& shard : destination_.shards) {
      if (there.emplace(std::pair(shard.set, shard.rank), shard.root).second) ++counts[shard.set];
    }
    for (const ReplicaShard& shard : source_.shards) {
      const bool is_committed = there_.by_step.contains(shard.set.step);
      const auto known = there.find({shard.set, shard.rank});
      const bool is_there = known != there.end();
      if (is_there && known->second != shard.root) {
        plan_.conflicts.push_back("rank " + std::to_string(shard.rank) + " of step " + std::to_string(shard.set.step) +
                                  " has other content in '" + name_ + "'");
        continue;
      }
      // One who died had completed the set and not committed it: offering it again helps it over the line.
      const bool is_complete = counts[shard.set] == shard.set.world_size;
      if (!is_committed && (!is_there || is_complete)) plan_.shards.push_back(shard);
    }
  }

  void add_removals() {
    for (const auto& [step, entry] : there_.by_step) {
      const bool is_here =
          here_.by_step.contains(step) || std::ranges::find(source_.unreadable, step) != source_.unreadable.end();
      if (!is_here && !leaves_.contains(step)) plan_.remove.push_back(step);
    }
  }

  const SyncRequest& request_;
  const Inventory& source_;
  Lookup there_;
  const Inventory& destination_;
  std::string name_;
  Lookup here_;
  SyncPlan plan_;
  std::map<std::pair<BaseCheckpoint, bool>, bool> added_;  ///< whether it's sent, or can't be
  std::set<std::uint64_t> leaves_;                         ///< steps that get free
};

}  // namespace

SyncPlan plan_sync(const SyncRequest& request, const Inventory& source, const Inventory& destination,
                   const std::string& destination_name) {
  return SyncPlanner(request, source, destination, destination_name).run();
}

std::optional<BaseCheckpoint> newest_whole(const Inventory& source, const Inventory& destination) {
  const Lookup here(source);
  std::optional<BaseCheckpoint> newest;
  for (const ReplicaCheckpoint& entry : destination.checkpoints) {
    if (entry.retired || entry.marked || !entry.bases.empty() || !here.committed.contains(entry.identity)) continue;
    if (!newest || entry.identity.step > newest->step) newest = entry.identity;
  }
  return newest;
}

std::vector<ReplicaCheckpoint> choose_checkpoints(const Inventory& source, const Selector& which,
                                                  const std::string& name) {
  if (which.kind == Selector::Kind::none) return source.checkpoints;
  std::vector<const ReplicaCheckpoint*> committed;
  for (const ReplicaCheckpoint& entry : source.checkpoints) {
    if (which.kind == Selector::Kind::id && to_hex(entry.identity.id).starts_with(which.id_prefix)) return {entry};
    if (entry.retired) continue;
    if (which.kind == Selector::Kind::step && entry.identity.step == which.step) return {entry};
    if (!entry.marked) committed.push_back(&entry);
  }
  if (which.kind == Selector::Kind::latest && which.back < committed.size())
    return {*committed[committed.size() - 1 - which.back]};
  throw Error(Errc::not_found, "'" + name + "' has no such checkpoint");
}

}  // namespace ckpt::ops
