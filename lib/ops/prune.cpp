// SPDX-License-Identifier: Apache-2.0
// Pruning a store: look at what there is, decide, encode anew what depends on what goes, move that away, look again,
// delete.
#include <ckpt/prune.hpp>

#include "doors/spool_places.hpp"
#include "format/damaged.hpp"
#include "ops/reencode.hpp"
#include "ops/retention.hpp"
#include "os/file_lock.hpp"
#include "os/small_file.hpp"
#include "store/dependencies.hpp"
#include "store/leftovers.hpp"
#include "store/pins.hpp"
#include "store/removal.hpp"
#include "store/retire.hpp"
#include "store/store.hpp"
#include "store/swap.hpp"
#include "store/verify_records.hpp"

#include <ckpt/address.hpp>
#include <ckpt/error.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

namespace ckpt {
namespace {

using ops::Candidate;
using ops::Decision;

bool has(const std::vector<std::uint64_t>& steps, std::uint64_t step) {
  return std::find(steps.begin(), steps.end(), step) != steps.end();
}

bool decides_anything(const RetentionPolicy& policy) {
  return policy.has_keep_rule() || !policy.remove.empty() || !policy.drop_after.empty();
}

void check_options(const PruneOptions& options) {
  ops::check_policy(options.policy);
  if (!decides_anything(options.policy) && options.pin.empty() && options.unpin.empty()) {
    throw Error(Errc::invalid_argument, "no policy says what stays and what goes")
        .with_hint(options.policy.keep.empty() ? "--keep-last=N keeps the newest N, for example"
                                               : "--keep=STEP is an exception to a rule such as --keep-last=N");
  }
  for (const std::uint64_t step : options.pin) {
    if (!has(options.unpin, step)) continue;
    throw Error(Errc::invalid_argument, "step " + std::to_string(step) + " is to be pinned and to be unpinned");
  }
}

/// What a store holds, and what the policy goes by; the two run side by side.
struct PruneInventory {
  std::vector<store::Checkpoint> checkpoints;
  std::vector<Candidate> candidates;
};

/// Nothing if it isn't there any more.
std::optional<format::Manifest> manifest_of(const store::Store& store, const std::string& directory, std::uint64_t step,
                                            bool retired) {
  if (retired) return store::read_manifest(directory);
  auto checkpoint = store.find(step);
  return checkpoint ? std::optional(std::move(checkpoint->manifest)) : std::nullopt;
}

/// In this order: a writer pins, publishes, lets go of the pin, and commits. Whenever it does one of these while this
/// looks, a later look sees it.
PruneInventory look(const store::Store& store, const PruneOptions& options) {
  PruneInventory found;
  const std::vector<store::PinEntry> pins = store::read_pins(store);
  const std::set<format::BaseCheckpoint> pending = store::bases_of_sets(store);
  const store::Verdicts verdicts = store::read_verdicts(store);
  const auto add = [&](const std::string& directory, std::uint64_t step, bool retired) {
    Candidate candidate{.step = step, .retired = retired, .health = ops::Health::unreadable};
    store::Checkpoint checkpoint{.directory = directory, .manifest = {}, .retired = retired};
    try {
      auto manifest = manifest_of(store, directory, step, retired);
      if (!manifest) return;
      const auto verdict = store::verdict_of(verdicts, manifest->step, manifest->id);
      const store::Pinned pinned = store::pinned_by(pins, *manifest, retired);
      candidate = {.step = manifest->step,
                   .id = manifest->id,
                   .retired = retired,
                   .created = manifest->created,
                   .meta = manifest->meta,
                   .marks = manifest->marks,
                   .health = !verdict                           ? ops::Health::unverified
                             : *verdict == store::Verdict::good ? ops::Health::good
                                                                : ops::Health::damaged,
                   .pinned = pinned.by_user,
                   .in_use = pinned.in_use,
                   .pending = pending.contains(manifest->identity()),
                   .bases = manifest->bases};
      checkpoint.manifest = std::move(*manifest);
    } catch (const format::Damaged&) {
      candidate.pinned = std::any_of(pins.begin(), pins.end(),
                                     [&](const store::PinEntry& pin) { return pin.by_user && pin.step == step; });
    }
    // A dry run pins nothing and tells what would be if it had.
    if (options.dry_run && has(options.pin, step)) candidate.pinned = true;
    if (options.dry_run && has(options.unpin, step)) candidate.pinned = false;
    found.checkpoints.push_back(std::move(checkpoint));
    found.candidates.push_back(std::move(candidate));
  };
  for (const std::uint64_t step : store.steps()) add(store.step_directory(step), step, false);
  for (const std::string& directory : store.retired_directories()) {
    const std::string name(os::last_name_of(directory));
    add(directory, store::parse_step_name(name.substr(0, name.find('-'))).value_or(0), true);
  }
  return found;
}

class PruneRun {
 public:
  PruneRun(const store::Store& store, const PruneOptions& options, Monitor& monitor)
      : store_(store), options_(options), monitor_(monitor) {}

  PruneReport run() {
    decide();
    if (!options_.dry_run) encode_anew();
    report_decisions();
    if (options_.dry_run) return std::move(report_);
    remove();
    return std::move(report_);
  }

 private:
  void decide() {
    inventory_ = look(store_, options_);
    decisions_ = ops::decide(options_.policy, inventory_.candidates);
  }

  /// Called where the error was caught.
  void fail(const store::Checkpoint& checkpoint, const Error& error) {
    if (error.code() == Errc::interrupted) throw;
    report_.failures.push_back(
        {.step = checkpoint.manifest.step, .message = error.what(), .temporary = error.code() == Errc::busy});
  }

  /// What depends on what goes; then what loses tensors. After that everything is looked at again: what couldn't be
  /// done, and what has been saved meanwhile, keeps its bases.
  void encode_anew() {
    bool changed = false;
    for (const std::size_t i : ops::rebase_order(inventory_.candidates, decisions_)) {
      changed = true;
      try {
        ops::rebase(store_, inventory_.checkpoints[i], decisions_[i].avoid, options_.jobs, monitor_);
        rebased_.push_back(inventory_.checkpoints[i].directory);
      } catch (const Error& error) {
        fail(inventory_.checkpoints[i], error);
      }
    }
    if (changed) decide();
    changed = false;
    for (std::size_t i = 0; i < decisions_.size(); ++i) {
      for (const std::string& pattern : decisions_[i].drop) changed = drop(i, pattern) || changed;
    }
    if (changed) decide();
    ops::hold_bases(inventory_.candidates, decisions_);
  }

  bool drop(std::size_t i, const std::string& pattern) {
    const format::BaseCheckpoint identity = inventory_.candidates[i].identity();
    const auto depends = [&](const Candidate& c) {
      return std::any_of(c.bases.begin(), c.bases.end(),
                         [&](const format::BaseCheckpoint& base) { return base == identity; });
    };
    // A dependent that couldn't be encoded anew is a failure already.
    if (std::any_of(inventory_.candidates.begin(), inventory_.candidates.end(), depends)) return false;
    try {
      const auto now = store::read_manifest(inventory_.checkpoints[i].directory);
      if (!now) return false;
      store::Checkpoint checkpoint = inventory_.checkpoints[i];
      checkpoint.manifest = *now;  // an earlier pattern has given it a new one
      ops::drop_tensors(store_, checkpoint, pattern, options_.jobs, monitor_);
      dropped_[checkpoint.directory].push_back(pattern);
      return true;
    } catch (const Error& error) {
      fail(inventory_.checkpoints[i], error);
      return false;
    }
  }

  void report_decisions() {
    for (std::size_t i = 0; i < decisions_.size(); ++i) {
      const Candidate& candidate = inventory_.candidates[i];
      const store::Checkpoint& checkpoint = inventory_.checkpoints[i];
      const bool readable = candidate.health != ops::Health::unreadable;
      PruneDecision decision{.step = candidate.step,
                             .id = readable ? to_hex(candidate.id) : std::string(),
                             .retired = candidate.retired,
                             .kept = decisions_[i].kept,
                             .rules = {decisions_[i].rules.begin(), decisions_[i].rules.end()},
                             .dropped = {},
                             .rebased = false,
                             .stored_bytes = checkpoint.manifest.stored_bytes(),
                             .created = candidate.created};
      decision.dropped = options_.dry_run ? decisions_[i].drop : dropped_[checkpoint.directory];
      decision.rebased = options_.dry_run ? !decisions_[i].avoid.empty() : contains(rebased_, checkpoint.directory);
      report_.decisions.push_back(std::move(decision));
    }
    for (const std::uint64_t step : options_.policy.remove) report_refusal(step);
  }

  /// A step that was to be removed and isn't.
  void report_refusal(std::uint64_t step) {
    const auto found = std::find_if(report_.decisions.begin(), report_.decisions.end(),
                                    [&](const PruneDecision& d) { return d.step == step && !d.retired; });
    const std::string address = store_.address(step);
    if (found == report_.decisions.end()) {
      report_.failures.push_back({.step = step, .message = "there is no checkpoint '" + address + "'"});
      return;
    }
    if (!found->kept) return;
    std::string why;
    for (const std::string& rule : found->rules) why += (why.empty() ? "" : ", ") + rule;
    const bool temporary = contains(found->rules, "in_use") || contains(found->rules, "pending");
    report_.failures.push_back(
        {.step = step, .message = "'" + address + "' is not removed: " + why, .temporary = temporary});
  }

  static bool contains(const std::vector<std::string>& list, const std::string& text) {
    return std::find(list.begin(), list.end(), text) != list.end();
  }

  void remove() {
    if (monitor_.stop_requested()) throw Error(Errc::interrupted, "stopped before anything was removed");
    std::vector<std::pair<std::size_t, std::string>> discarded;
    for (const std::size_t i : ops::removal_order(inventory_.candidates, decisions_)) {
      const std::string& directory = inventory_.checkpoints[i].directory;
      if (store::discard(store_, directory)) discarded.emplace_back(i, os::last_name_of(directory));
    }
    if (options_.policy.has_keep_rule()) {
      discard_sets();
      report_.sets += doors::remove_superseded(store_, monitor_);
    }
    const store::Settled settled = store::settle_trash(store_);
    for (const std::string& why : settled.left) monitor_.warning(why + "; the next prune tries again");
    for (const auto& [i, name] : discarded) {
      PruneDecision& decision = report_.decisions[i];
      if (contains(settled.put_back, name)) {
        decision.kept = true;
        decision.rules.emplace_back("in_use");
        if (has(options_.policy.remove, decision.step)) report_refusal(decision.step);
        continue;
      }
      ++report_.removed;
      report_.removed_bytes += decision.stored_bytes;
      monitor_.note("removed '" + inventory_.checkpoints[i].directory + "'");
    }
  }

  void discard_sets() {
    report_.sets = store::discard_dead_sets(store_);
    for (const std::string& name : os::list_directory(store_.retired()).value_or(std::vector<std::string>{})) {
      if (!name.starts_with(store::retired_set_prefix)) continue;
      if (store::discard(store_, store_.retired() + "/" + name)) ++report_.sets;
    }
  }

  const store::Store& store_;
  const PruneOptions& options_;
  Monitor& monitor_;
  PruneInventory inventory_;
  std::vector<Decision> decisions_;
  std::vector<std::string> rebased_;                         ///< directories
  std::map<std::string, std::vector<std::string>> dropped_;  ///< patterns, by directory
  PruneReport report_;
};

PruneReport run_dry(const PruneOptions& options, Monitor& monitor) {
  const store::Store store = store::Store::open(options.store);
  for (const std::uint64_t step : options.pin) {
    (void)store.resolve({.kind = Selector::Kind::step, .step = step, .back = 0, .id_prefix = {}});
  }
  PruneReport report = PruneRun(store, options, monitor).run();
  for (const PruneDecision& decision : report.decisions) {
    if (decision.kept) continue;
    ++report.removed;
    report.removed_bytes += decision.stored_bytes;
  }
  return report;
}

}  // namespace

PruneReport prune(const PruneOptions& options, Monitor& monitor) {
  check_options(options);
  const auto start = std::chrono::steady_clock::now();
  PruneReport report;
  if (options.dry_run) {
    report = run_dry(options, monitor);
  } else {
    const store::Store store = store::Store::open_for_writing(options.store, false);
    // Not under the lock: a prune that is at work sees them, too.
    for (const std::uint64_t step : options.pin) store::add_user_pin(store, step);
    for (const std::uint64_t step : options.unpin) store::remove_user_pin(store, step);
    if (decides_anything(options.policy)) {
      store::clean_leftovers(store);
      const os::FileLock lock(store::lock_path(store), store::swap_patience);
      (void)store::settle_trash(store);
      report = PruneRun(store, options, monitor).run();
    }
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace ckpt
