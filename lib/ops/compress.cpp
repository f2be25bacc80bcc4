// SPDX-License-Identifier: Apache-2.0
// Encoding a store's checkpoints anew: one after the other, each under the lock, each looked at again when its turn
// comes, since much may have happened meanwhile.
#include <ckpt/compress.hpp>

#include "format/damaged.hpp"
#include "ops/lossy.hpp"
#include "ops/reencode.hpp"
#include "os/file_lock.hpp"
#include "store/bases.hpp"
#include "store/dependencies.hpp"
#include "store/leftovers.hpp"
#include "store/pins.hpp"
#include "store/store.hpp"
#include "store/swap.hpp"
#include "store/verify_records.hpp"

#include <ckpt/address.hpp>
#include <ckpt/error.hpp>

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

namespace ckpt {
namespace {

void check_options(const CompressOptions& options) {
  const auto refuse = [](const std::string& why) { throw Error(Errc::invalid_argument, why); };
  if (options.encode == Encode::raw) refuse("checkpoints aren't encoded to raw bytes");
  if (options.level && (*options.level < 1 || *options.level > 19)) refuse("the level isn't from 1 to 19");
  if (options.max_chain < 1 || options.max_chain > format::max_chain) refuse("the longest chain isn't from 1 to 8");
  if (options.newest_full && options.rebase) refuse("either the newest in full or all without bases, not both");
  const bool chosen = options.base != BaseChoice::automatic;
  if (chosen && (options.newest_full || options.rebase)) refuse("a base is given, and a way that chooses it, too");
  ops::check_rules(options.lossy);
  if (!options.lossy.empty() && (options.newest_full || options.rebase || options.across_ranks)) {
    refuse("values are dropped or rounded in one go, what they're stored against is changed in another");
  }
}

/// A replica's blocks may be stored with another rank, which then is a base as much as another checkpoint.
bool refers_to_itself(const store::Checkpoint& checkpoint) {
  return std::any_of(
      checkpoint.manifest.shards.begin(), checkpoint.manifest.shards.end(), [&](const format::ManifestShard& shard) {
        const auto bases = format::read_container_summary(checkpoint.shard_path(shard)).bases;
        return std::any_of(bases.begin(), bases.end(),
                           [&](const format::BaseCheckpoint& base) { return base == checkpoint.manifest.identity(); });
      });
}

class CompressRun {
 public:
  CompressRun(const store::Store& store, const CompressOptions& options, Monitor& monitor)
      : store_(store), options_(options), monitor_(monitor) {}

  CompressReport run() {
    for (const std::uint64_t step : choose_steps()) {
      CompressedCheckpoint& done = report_.checkpoints.emplace_back();
      done.step = step;
      try {
        handle(done);
      } catch (const Error& error) {
        if (error.code() == Errc::interrupted) throw;
        done.temporary = error.code() == Errc::busy;
        // Of a whole store, what can't be done now isn't asked for by name.
        done.action = done.temporary && options_.which.empty() ? CompressAction::skipped : CompressAction::failed;
        done.reason = error.what();
      }
      newer_ = step;
    }
    for (const LossyRule& rule : options_.lossy) {
      if (any_tried_ && !matched_.contains(rule.pattern)) report_.unmatched.push_back(rule.pattern);
    }
    return std::move(report_);
  }

 private:
  /// In the order in which they're done: a base comes before what is stored against it.
  std::vector<std::uint64_t> choose_steps() {
    std::vector<std::uint64_t> steps;
    for (const Selector& selector : options_.which) {
      const store::Checkpoint checkpoint = store_.resolve(selector);
      if (checkpoint.retired) {
        throw Error(Errc::invalid_argument, "'" + checkpoint.directory + "' is retired: it isn't encoded anew");
      }
      steps.push_back(checkpoint.manifest.step);
    }
    if (options_.which.empty()) steps = store_.steps();
    std::sort(steps.begin(), steps.end());
    steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
    if (options_.older_than_seconds) keep_old(steps);
    if (options_.newest_full) std::reverse(steps.begin(), steps.end());
    return steps;
  }

  void keep_old(std::vector<std::uint64_t>& steps) const {
    std::optional<std::int64_t> newest;
    const auto time_of = [&](std::uint64_t step) -> std::optional<std::int64_t> {
      try {
        const auto checkpoint = store_.find(step);
        return checkpoint ? checkpoint->manifest.created : std::nullopt;
      } catch (const format::Damaged&) {
        return std::nullopt;
      }
    };
    for (const std::uint64_t step : store_.steps()) {
      const auto time = time_of(step);
      if (time && (!newest || *time > *newest)) newest = time;
    }
    std::erase_if(steps, [&](std::uint64_t step) {
      const auto time = time_of(step);
      return !time || static_cast<double>(*newest - *time) <= *options_.older_than_seconds;
    });
  }

  void handle(CompressedCheckpoint& done) {
    std::optional<os::FileLock> lock;
    if (!options_.dry_run) lock.emplace(store::lock_path(store_), store::swap_patience);
    const auto checkpoint = store_.find(done.step);
    if (!checkpoint) {
      done.reason = "it isn't there any more";
      return;
    }
    const format::Manifest& manifest = checkpoint->manifest;
    done.id = to_hex(manifest.id);
    done.stored_before = done.stored_after = manifest.stored_bytes();
    done.raw_bytes += manifest.raw_bytes();
    require_free(*checkpoint);
    if (options_.rebase && manifest.bases.empty()) {
      done.action = CompressAction::unchanged;
      return;
    }
    if (!options_.lossy.empty()) {
      lose_values(*checkpoint, done);
      return;
    }
    const ops::ReencodePlan plan = plan_for(*checkpoint, done);
    if (options_.dry_run) {
      done.stored_after = ops::estimate_reencode(*checkpoint, plan, options_.jobs, monitor_);
      const bool smaller = done.stored_after < done.stored_before;
      done.action = smaller || !plan.only_if_smaller ? CompressAction::encoded : CompressAction::unchanged;
    } else {
      const auto result = ops::reencode(store_, *checkpoint, plan, options_.jobs, monitor_);
      done.stored_after = result.stored_after;
      done.action = result.swapped ? CompressAction::encoded : CompressAction::unchanged;
    }
    if (done.action == CompressAction::unchanged) {
      done.stored_after = done.stored_before;
      done.base.reset();
    }
  }

  void lose_values(const store::Checkpoint& checkpoint, CompressedCheckpoint& done) {
    const std::string address = store_.address(done.step);
    std::string why;
    if (store::pinned_by(store::read_pins(store_), checkpoint.manifest, false).by_user) why = "is pinned";
    if (is_newest_good(checkpoint)) why = "is the newest good checkpoint";
    if (!why.empty()) {
      if (!options_.which.empty()) {
        throw Error(Errc::invalid_argument, "'" + address + "' " + why + " and keeps its values");
      }
      done.reason = "it " + why + " and keeps its values";
      return;
    }
    const ops::LossyMatch match = ops::match_rules(checkpoint, options_.lossy);
    matched_.insert(match.patterns.begin(), match.patterns.end());
    any_tried_ = true;
    done.action = CompressAction::unchanged;
    if (!match.any) return;
    ops::ReencodePlan plan = plan_for(checkpoint, done);
    ops::LossyResult result;
    if (options_.dry_run) {
      plan.has_dependents = false;
      result = ops::estimate_lossy(checkpoint, options_.lossy, plan, options_.jobs, monitor_);
    } else {
      for (const store::Checkpoint& dependent : store::dependents_of(store_, checkpoint.manifest.identity())) {
        require_free(dependent);
        ops::rebase(store_, dependent, {checkpoint.manifest.identity()}, options_.jobs, monitor_);
      }
      plan.has_dependents = false;
      plan.last_look = [this, &checkpoint] {
        require_free(checkpoint);
        if (store::dependents_of(store_, checkpoint.manifest.identity()).empty()) return;
        throw Error(Errc::busy, "a new checkpoint depends on '" + store_.address(checkpoint.manifest.step) + "'");
      };
      result = ops::make_lossy(store_, checkpoint, options_.lossy, plan, options_.jobs, monitor_);
    }
    done.action = result.changed ? CompressAction::encoded : CompressAction::unchanged;
    if (!result.changed) {
      done.base.reset();
      return;
    }
    done.id = to_hex(result.id);
    done.stored_after = result.stored_after;
    done.losses = std::move(result.losses);
  }

  [[nodiscard]] bool is_newest_good(const store::Checkpoint& checkpoint) const {
    const store::Verdicts verdicts = store::read_verdicts(store_);
    for (const std::uint64_t step : store_.unmarked(nullptr)) {
      const auto good = store_.find(step);
      if (!good || store::verdict_of(verdicts, step, good->manifest.id) == store::Verdict::damaged) continue;
      return step == checkpoint.manifest.step;
    }
    return false;
  }

  /// In this order: a writer pins, publishes, lets go of the pin, and commits. Whenever it does one of these while this
  /// looks, a later look sees it; what is committed is found by has_dependents().
  void require_free(const store::Checkpoint& checkpoint) const {
    const format::Manifest& manifest = checkpoint.manifest;
    const std::string address = store_.address(manifest.step);
    if (store::pinned_by(store::read_pins(store_), manifest, false).in_use) {
      throw Error(Errc::busy, "'" + address + "' is in use");
    }
    if (store::bases_of_sets(store_).contains(manifest.identity())) {
      throw Error(Errc::busy, "a checkpoint in the making depends on '" + address + "'");
    }
  }

  [[nodiscard]] bool has_dependents(const store::Checkpoint& checkpoint) const {
    return !store::dependents_of(store_, checkpoint.manifest.identity()).empty() || refers_to_itself(checkpoint);
  }

  ops::ReencodePlan plan_for(const store::Checkpoint& checkpoint, CompressedCheckpoint& done) {
    ops::ReencodePlan plan;
    plan.has_dependents = has_dependents(checkpoint);
    plan.across_ranks = options_.across_ranks && checkpoint.manifest.world_size > 1;
    plan.settings.effort = options_.encode == Encode::best ? codec::Effort::best : codec::Effort::fast;
    plan.settings.level = options_.level;
    plan.settings.max_depth = static_cast<std::uint8_t>(options_.max_chain);
    if (options_.dry_run && options_.newest_full) plan.settings.base_depth = depth_;
    if (options_.rebase) {
      plan.only_where_needed = true;
      plan.avoid = checkpoint.manifest.bases;
    } else {
      plan.base = choose_base(checkpoint);
      depth_ = plan.base && depth_ < options_.max_chain ? depth_ + 1 : 0;
      plan.only_if_smaller = !options_.newest_full;
      if (plan.base) done.base = plan.base->manifest.step;
    }
    plan.last_look = [this, &checkpoint, before = plan.has_dependents] {
      require_free(checkpoint);
      if (!before && has_dependents(checkpoint)) {
        throw Error(Errc::busy, "a new checkpoint depends on '" + store_.address(checkpoint.manifest.step) + "'");
      }
    };
    return plan;
  }

  [[nodiscard]] std::optional<store::Checkpoint> choose_base(const store::Checkpoint& checkpoint) const {
    if (options_.newest_full) {
      if (!newer_) return std::nullopt;
      // A dry run has changed nothing, so that what would be turned round still points the old way.
      auto base = store_.find(*newer_);
      if (base && !options_.dry_run && depends_on(store_, *base, checkpoint.manifest.identity())) {
        throw Error(Errc::busy, "'" + store_.address(checkpoint.manifest.step) + "' stays as it is, since '" +
                                    store_.address(*newer_) + "' still depends on it");
      }
      return base;
    }
    if (options_.base == BaseChoice::none) return std::nullopt;
    if (options_.base == BaseChoice::step) return given_base(checkpoint);
    const store::Verdicts verdicts = store::read_verdicts(store_);
    for (const std::uint64_t step : store_.unmarked(nullptr)) {
      if (step >= checkpoint.manifest.step) continue;
      auto base = store_.find(step);
      if (!base || depends_on(store_, *base, checkpoint.manifest.identity())) continue;
      if (store::verdict_of(verdicts, step, base->manifest.id) == store::Verdict::damaged) continue;
      return base;
    }
    return std::nullopt;
  }

  [[nodiscard]] std::optional<store::Checkpoint> given_base(const store::Checkpoint& checkpoint) const {
    auto base = store_.resolve({.kind = Selector::Kind::step, .step = options_.base_step});
    // A base is as it is.
    if (base.manifest.identity() == checkpoint.manifest.identity()) return std::nullopt;
    if (depends_on(store_, base, checkpoint.manifest.identity())) {
      throw Error(Errc::invalid_argument, "'" + store_.address(options_.base_step) + "' depends on '" +
                                              store_.address(checkpoint.manifest.step) + "' and can't be its base");
    }
    return base;
  }

  const store::Store& store_;
  const CompressOptions& options_;
  Monitor& monitor_;
  std::optional<std::uint64_t> newer_;  ///< the step that was done before
  std::uint8_t depth_ = 0;              ///< that of most of its blocks, when the newest is to be full
  bool any_tried_ = false;
  std::set<std::string> matched_;  ///< patterns
  CompressReport report_;
};

}  // namespace

CompressReport compress(const CompressOptions& options, Monitor& monitor) {
  check_options(options);
  const auto start = std::chrono::steady_clock::now();
  CompressReport report;
  if (options.dry_run) {
    report = CompressRun(store::Store::open(options.store), options, monitor).run();
  } else {
    const store::Store store = store::Store::open_for_writing(options.store, false);
    store::clean_leftovers(store);
    report = CompressRun(store, options, monitor).run();
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace ckpt
