// SPDX-License-Identifier: Apache-2.0
#include "ops/reencode.hpp"

#include "ops/open_shard.hpp"
#include "ops/shard_reencoder.hpp"
#include "os/temporary_file.hpp"
#include "store/bases.hpp"
#include "store/swap.hpp"

#include <ckpt/error.hpp>

#include <deque>
#include <set>
#include <utility>

namespace ckpt::ops {

std::optional<store::Checkpoint> base_beyond(const store::Store& store, const store::Checkpoint& checkpoint,
                                             const std::vector<format::BaseCheckpoint>& avoid) {
  std::deque<format::BaseCheckpoint> open(checkpoint.manifest.bases.begin(), checkpoint.manifest.bases.end());
  std::set<format::BaseCheckpoint> seen;
  while (!open.empty()) {
    const format::BaseCheckpoint next = open.front();
    open.pop_front();
    if (!seen.insert(next).second) continue;
    const auto found = store::find_base(store.path(), next);
    if (!found) continue;
    if (!contains(avoid, next)) return found;
    open.insert(open.end(), found->manifest.bases.begin(), found->manifest.bases.end());
  }
  return std::nullopt;
}

void swap_after_last_look(const store::Store& store, const store::Checkpoint& checkpoint, format::Manifest manifest,
                          const std::vector<store::NewContainer>& containers, const ReencodePlan& plan) {
  if (plan.last_look) {
    store::announce_swap(store, checkpoint);
    try {
      plan.last_look();
    } catch (const Error&) {
      store::withdraw_swap(store, checkpoint);
      throw;
    }
  }
  store::swap_containers(store, checkpoint, std::move(manifest), containers);
}

ReencodeResult reencode(const store::Store& store, const store::Checkpoint& checkpoint, const ReencodePlan& plan,
                        unsigned jobs, Monitor& monitor) {
  ReencodeResult result{.stored_before = checkpoint.manifest.stored_bytes(), .stored_after = 0};
  format::Manifest manifest = checkpoint.manifest;
  const format::BaseCheckpoint own = manifest.identity();
  manifest.bases.clear();
  std::deque<os::TemporaryFile> temporaries;
  std::vector<store::NewContainer> containers;
  LowerRanks lower;
  for (format::ManifestShard& shard : manifest.shards) {
    ShardReencoder reencoder(open_shard(checkpoint, shard.rank), own, plan, plan.across_ranks ? &lower : nullptr,
                             monitor);
    const os::TemporaryFile& temporary = temporaries.emplace_back(store.scratch(), 0444);
    const auto finished = reencoder.write(temporary.share(), temporary.path(), jobs);
    if (plan.across_ranks) lower.add(shard.rank, finished.index);
    shard.size = finished.size;
    shard.digest = finished.digest;
    containers.push_back({.rank = shard.rank, .temporary = temporary.path()});
    result.stored_after += finished.size;
    for (const format::BaseCheckpoint& base : reencoder.bases_in(finished.index)) {
      (void)format::row_of(manifest.bases, base);
    }
  }
  if (plan.only_if_smaller && result.stored_after >= result.stored_before) {
    result.stored_after = result.stored_before;
    return result;
  }
  swap_after_last_look(store, checkpoint, std::move(manifest), containers, plan);
  result.swapped = true;
  return result;
}

std::uint64_t estimate_reencode(const store::Checkpoint& checkpoint, const ReencodePlan& plan, unsigned jobs,
                                Monitor& monitor) {
  const format::BaseCheckpoint own = checkpoint.manifest.identity();
  LowerRanks lower;
  std::uint64_t stored = 0;
  for (const format::ManifestShard& shard : checkpoint.manifest.shards) {
    const auto reader = open_shard(checkpoint, shard.rank);
    stored += ShardReencoder(reader, own, plan, plan.across_ranks ? &lower : nullptr, monitor).estimate(jobs);
    if (plan.across_ranks) lower.add(shard.rank, reader->index());
  }
  return stored;
}

void rebase(const store::Store& store, const store::Checkpoint& checkpoint,
            const std::vector<format::BaseCheckpoint>& avoid, unsigned jobs, Monitor& monitor) {
  const ReencodePlan plan{.base = base_beyond(store, checkpoint, avoid),
                          .avoid = avoid,
                          .only_where_needed = true,
                          .has_dependents = true,
                          .settings = {}};
  (void)reencode(store, checkpoint, plan, jobs, monitor);
}

}  // namespace ckpt::ops
