// SPDX-License-Identifier: Apache-2.0
#include "ops/lossy.hpp"

#include "format/container_index.hpp"
#include "ops/lossy_change.hpp"
#include "ops/open_shard.hpp"
#include "ops/retention.hpp"
#include "ops/shard_reencoder.hpp"
#include "os/temporary_file.hpp"
#include "store/bases.hpp"
#include "store/swap.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <utility>

namespace ckpt::ops {
namespace {

constexpr const char* lossy_mark = "lossy";
constexpr const char* origin_mark = "derived_from";

/// In the order in which they're applied.
std::vector<LossyRule> in_order(std::vector<LossyRule> rules) {
  const auto rank = [](const LossyRule& rule) {
    return rule.kind == LossyRule::Kind::sparsify ? 0 : rule.kind == LossyRule::Kind::quantize ? 1 : 2;
  };
  std::stable_sort(rules.begin(), rules.end(),
                   [&](const LossyRule& a, const LossyRule& b) { return rank(a) < rank(b); });
  return rules;
}

std::string reason_of(const LossyRule& rule) {
  return rule.kind == LossyRule::Kind::drop ? reason_of_drop(rule.pattern) : verb_of(rule) + " " + rule.pattern;
}

/// What the mark says already, and these.
std::string reasons(const format::Manifest& manifest, const std::vector<LossyRule>& rules) {
  const auto known = manifest.marks.find(lossy_mark);
  std::string all = known == manifest.marks.end() ? std::string() : known->second;
  for (const LossyRule& rule : rules) {
    const std::string reason = reason_of(rule);
    if (("; " + all + "; ").find("; " + reason + "; ") != std::string::npos) continue;
    all += (all.empty() ? "" : "; ") + reason;
  }
  return all;
}

}  // namespace

void check_rules(const std::vector<LossyRule>& rules) {
  const auto refuse = [](const std::string& why) { throw Error(Errc::invalid_argument, why); };
  for (const LossyRule& rule : rules) {
    if (rule.pattern.find_first_not_of("*?[]!^") == std::string::npos) {
      refuse("the pattern '" + rule.pattern + "' would change every tensor");
    }
    if (rule.kind == LossyRule::Kind::sparsify && !(rule.fraction > 0 && rule.fraction < 1)) {
      refuse("the share of values that become zero isn't between 0 and 1");
    }
  }
}

LossyMatch match_rules(const store::Checkpoint& checkpoint, const std::vector<LossyRule>& rules) {
  LossyMatch match;
  for (const format::ManifestShard& shard : checkpoint.manifest.shards) {
    const LossyChange change(open_shard(checkpoint, shard.rank), rules);
    match.any = match.any || !change.empty();
    for (std::size_t r = 0; r < rules.size(); ++r) {
      if (change.matched()[r]) match.patterns.push_back(rules[r].pattern);
    }
  }
  return match;
}

LossyResult make_lossy(const store::Store& store, const store::Checkpoint& checkpoint,
                       const std::vector<LossyRule>& asked, const ReencodePlan& plan, unsigned jobs, Monitor& monitor) {
  const std::vector<LossyRule> rules = in_order(asked);
  format::Manifest manifest = checkpoint.manifest;
  const format::BaseCheckpoint own = manifest.identity();
  const std::map<std::string, std::string> marks = {{lossy_mark, reasons(manifest, rules)},
                                                    {origin_mark, to_hex(manifest.id)}};
  LossyResult result{.changed = false, .id = manifest.id, .stored_after = 0, .losses = {}};
  manifest.bases.clear();
  std::deque<os::TemporaryFile> temporaries;
  std::vector<store::NewContainer> containers;
  std::vector<Digest> roots;
  bool any = false;
  for (format::ManifestShard& shard : manifest.shards) {
    const auto old = open_shard(checkpoint, shard.rank);
    LossyChange change(old, rules);
    any = any || !change.empty();
    change.prepare(jobs, monitor);
    for (TensorLoss& loss : change.losses()) result.losses.push_back(std::move(loss));
    ShardReencoder reencoder(old, own, plan, nullptr, monitor, &change, marks);
    const os::TemporaryFile& temporary = temporaries.emplace_back(store.scratch(), 0444);
    const auto finished = reencoder.write(temporary.share(), temporary.path(), jobs);
    shard.size = finished.size;
    shard.digest = finished.digest;
    shard.root = finished.root;
    roots.push_back(finished.root);
    containers.push_back({.rank = shard.rank, .temporary = temporary.path()});
    result.stored_after += finished.size;
    for (const format::BaseCheckpoint& base : reencoder.bases_in(finished.index))
      (void)format::row_of(manifest.bases, base);
  }
  manifest.id = format::checkpoint_id(roots);
  if (!any || manifest.id == checkpoint.manifest.id) {
    result.stored_after = checkpoint.manifest.stored_bytes();
    return result;
  }
  for (const auto& [mark, reason] : marks) manifest.marks[mark] = reason;
  result.changed = true;
  result.id = manifest.id;
  swap_after_last_look(store, checkpoint, std::move(manifest), containers, plan);
  return result;
}

LossyResult estimate_lossy(const store::Checkpoint& checkpoint, const std::vector<LossyRule>& asked,
                           const ReencodePlan& plan, unsigned jobs, Monitor& monitor) {
  const std::vector<LossyRule> rules = in_order(asked);
  LossyResult result{.changed = false, .id = checkpoint.manifest.id, .stored_after = 0, .losses = {}};
  for (const format::ManifestShard& shard : checkpoint.manifest.shards) {
    const auto old = open_shard(checkpoint, shard.rank);
    LossyChange change(old, rules);
    result.changed = result.changed || !change.empty();
    change.prepare(jobs, monitor);
    for (TensorLoss& loss : change.losses()) result.losses.push_back(std::move(loss));
    result.stored_after +=
        ShardReencoder(old, checkpoint.manifest.identity(), plan, nullptr, monitor, &change).estimate(jobs);
  }
  return result;
}

void drop_tensors(const store::Store& store, const store::Checkpoint& checkpoint, const std::string& pattern,
                  unsigned jobs, Monitor& monitor) {
  const std::vector<LossyRule> rules = {{.kind = LossyRule::Kind::drop, .pattern = pattern}};
  ReencodePlan plan;
  for (const format::BaseCheckpoint& base : checkpoint.manifest.bases) {
    plan.base = store::find_base(store.path(), base);
    if (plan.base) break;
  }
  if (make_lossy(store, checkpoint, rules, plan, jobs, monitor).changed) return;
  format::Manifest manifest = checkpoint.manifest;
  manifest.marks[lossy_mark] = reasons(manifest, rules);
  store::swap_manifest(store, checkpoint, manifest);
}

}  // namespace ckpt::ops
