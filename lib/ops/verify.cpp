// SPDX-License-Identifier: Apache-2.0
// Verifying a store: which checkpoints, in which order, until when. What is checked in one is verify_checkpoint's.
#include <ckpt/verify.hpp>

#include "format/damaged.hpp"
#include "ops/repair.hpp"
#include "ops/repair_from_replicas.hpp"
#include "ops/replica_blocks.hpp"
#include "ops/throttled_monitor.hpp"
#include "ops/verify_checkpoint.hpp"
#include "os/fd.hpp"
#include "os/small_file.hpp"
#include "store/pending_set.hpp"
#include "store/store.hpp"
#include "store/verify_records.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <utility>

namespace ckpt {
namespace {

using Clock = std::chrono::steady_clock;

void check_options(const VerifyOptions& options) {
  const auto refuse = [](const char* why) { throw Error(Errc::invalid_argument, why); };
  if (options.sample_percent && (*options.sample_percent <= 0 || *options.sample_percent > 100)) {
    refuse("a sample is more than 0 and at most 100 percent");
  }
  if (options.budget_seconds && *options.budget_seconds < 0) refuse("a budget of less than no time");
  if (!options.from.empty() && !options.repair) refuse("replicas are asked for a repair only");
  if (options.repair && (options.sample_percent || options.budget_seconds))
    refuse("a repair looks at everything: no sample, no budget");
}

/// Opens the store; if its own description is damaged that's a finding, and mended with `repair`.
std::optional<store::Store> open_store(const VerifyOptions& options, VerifyReport& report) {
  const std::string& path = options.what.store;
  try {
    return store::Store::open(path);
  } catch (const format::Damaged& damage) {
    Damage found{.checkpoint = path, .kind = damage.kind(), .shard = store::description_file, .detail = damage.what()};
    if (options.repair) ops::repair_store_description(path, found);
    report.damages.push_back(found);
    if (found.repaired) return store::Store::open(path);
    return std::nullopt;
  }
}

void report_pending(const store::Store& store, VerifyReport& report) {
  for (const store::SetContent& set : store::pending_sets(store)) {
    NotCommitted found{
        .step = set.key.step, .attempt = set.key.attempt, .world_size = set.key.world_size, .missing_ranks = {}};
    for (std::uint32_t rank = 0; rank < set.key.world_size; ++rank) {
      if (!set.files.contains(rank)) found.missing_ranks.push_back(rank);
    }
    report.not_committed.push_back(std::move(found));
  }
}

/// A checkpoint whose manifest can't be believed: a finding, and with `repair` perhaps a checkpoint after all.
std::optional<store::Checkpoint> find_checkpoint_to_verify(const store::Store& store, std::uint64_t step,
                                                           const VerifyOptions& options,
                                                           const ops::ReplicaBlocks* replicas, VerifyReport& report) {
  Damage found{.checkpoint = store.address(step), .shard = store::manifest_file, .detail = {}, .repair = {}};
  try {
    return store.find(step);
  } catch (const format::Damaged& damage) {
    if (ops::is_no_access(damage)) throw;
    found.kind = damage.kind();
    found.detail = damage.what();
  } catch (const Error& error) {
    if ((error.code() != Errc::io && error.code() != Errc::unsupported) || ops::is_no_access(error)) throw;
    found.kind = DamageKind::unreadable;
    found.detail = error.what();
  }
  if (options.repair) ops::repair_manifest(store, step, found);
  if (!found.repaired && replicas != nullptr) ops::repair_manifest_from_replicas(store, step, *replicas, found);
  report.damages.push_back(found);
  return found.repaired ? store.find(step) : std::nullopt;
}

std::vector<std::uint64_t> steps_to_verify(const store::Store& store, const Selector& selector) {
  if (selector.kind == Selector::Kind::step) return {selector.step};
  std::vector<std::uint64_t> steps = store.steps();
  if (selector.kind == Selector::Kind::none) return steps;
  try {
    return {store.resolve(selector).manifest.step};
  } catch (const format::Damaged&) {
    // The one whose manifest kept the others from being counted.
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      try {
        (void)store.find(*step);
      } catch (const format::Damaged&) {
        return {*step};
      }
    }
    throw;
  }
}

class VerifyRun {
 public:
  VerifyRun(const VerifyOptions& options, store::Store store, VerifyReport& report, Monitor& monitor)
      : options_(options), store_(std::move(store)), report_(report), monitor_(monitor) {
    if (!options.from.empty()) {
      replicas_.emplace(
          ops::ReplicaBlocks::Places{
              .store = store_.path(), .replicas = options.from, .scratch = store_.path(), .peer = options.peer},
          monitor_);
    }
    if (options.budget_seconds)
      deadline_ = Clock::now() +
                  std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(*options.budget_seconds));
    state_path_ = options.state_file.empty() ? store::state_path(store_) : options.state_file;
    if (options.budget_seconds || !options.state_file.empty()) state_ = store::read_state(state_path_);
  }

  void verify_steps(std::vector<std::uint64_t> steps) {
    // A place to go on from is of a run over the whole store.
    const bool whole = options_.what.selector.kind == Selector::Kind::none;
    const auto cursor = options_.budget_seconds && whole ? std::exchange(state_.cursor, std::nullopt) : std::nullopt;
    if (cursor && !steps.empty() && steps.back() >= cursor->step) {
      std::erase_if(steps, [&](std::uint64_t step) { return step < cursor->step; });
    }
    for (const std::uint64_t step : steps) {
      if (is_over()) {
        stop_at(cursor && cursor->step == step ? *cursor : store::VerifyCursor{.step = step});
        return;
      }
      try {
        if (!verify_step(step, cursor)) return;
      } catch (const Error& error) {
        // Whoever asked for this one alone gets the error itself.
        if (!whole || !ops::is_no_access(error)) throw;
        report_.failures.push_back(store_.address(step) + ": " + error.what());
      }
    }
  }

  /// False if the budget ended it.
  bool verify_one(const store::Checkpoint& checkpoint, const std::optional<store::VerifyCursor>& from) {
    ops::CheckpointCheck check(store_, checkpoint, options_, replicas_ ? &*replicas_ : nullptr, monitor_);
    if (from) check.start_at(from->rank, from->position);
    ++report_.checkpoints;
    const bool finished = check.run([&] { return is_over(); });
    bool damaged = from && from->damaged;
    const std::vector<Damage> found = check.damages();
    damaged = damaged || std::any_of(found.begin(), found.end(), [](const Damage& d) { return !d.repaired; });
    report_.bytes += check.bytes();
    report_.damages.insert(report_.damages.end(), found.begin(), found.end());
    report_.non_finite.insert(report_.non_finite.end(), check.non_finite().begin(), check.non_finite().end());
    if (finished || damaged) record(checkpoint, damaged, found);
    if (!finished) {
      stop_at({.step = checkpoint.manifest.step,
               .id = checkpoint.manifest.id,
               .rank = check.position().rank,
               .position = check.position().byte,
               .damaged = damaged});
    }
    return finished;
  }

  /// Keeps what the next run needs.
  void save_state() {
    if (!options_.budget_seconds && options_.state_file.empty()) return;
    try {
      if (options_.state_file.empty()) os::make_directory(store_.records());
      store::write_state(state_path_, state_);
    } catch (const Error& error) {
      // What was found stands; only the next run has to begin again.
      monitor_.warning(std::string(error.what()) + "; the next run starts from the beginning");
    }
  }

 private:
  /// False if the budget ended it.
  bool verify_step(std::uint64_t step, const std::optional<store::VerifyCursor>& cursor) {
    const auto checkpoint =
        find_checkpoint_to_verify(store_, step, options_, replicas_ ? &*replicas_ : nullptr, report_);
    // A step that was asked for by number and isn't there is an error; one that was just pruned isn't.
    if (!checkpoint && options_.what.selector.kind == Selector::Kind::step && report_.damages.empty()) {
      (void)store_.resolve(options_.what.selector);
    }
    if (!checkpoint) return true;
    const bool go_on = cursor && cursor->step == step && cursor->id == checkpoint->manifest.id;
    return verify_one(*checkpoint, go_on ? cursor : std::nullopt);
  }

  [[nodiscard]] bool is_over() const { return deadline_ && Clock::now() >= *deadline_; }

  void stop_at(const store::VerifyCursor& cursor) {
    report_.complete = false;
    if (options_.what.selector.kind == Selector::Kind::none) state_.cursor = cursor;
  }

  void record(const store::Checkpoint& checkpoint, bool damaged, const std::vector<Damage>& found) {
    // A sample says something only if it found something; a retired checkpoint is never `good`.
    if (checkpoint.retired || (options_.sample_percent && !damaged) || !os::exists(checkpoint.directory)) return;
    // Nor does a quick look: it says nothing about the bytes, and must not hide what a closer one found.
    const VerifyLevel level = ops::effective_level(options_);
    if (!damaged && level == VerifyLevel::quick) return;
    if (!damaged && level == VerifyLevel::stored && store::is_damaged_deeply(store_, checkpoint.manifest)) return;
    store::VerifyRecord record{.step = checkpoint.manifest.step,
                               .id = checkpoint.manifest.id,
                               .verdict = damaged ? store::Verdict::damaged : store::Verdict::good,
                               .level = std::string(ops::to_string(level)),
                               .when = std::time(nullptr),
                               .found = {}};
    for (const Damage& damage : found) {
      if (!damage.repaired) record.found.push_back(damage.shard + ": " + damage.detail);
    }
    if (!options_.state_file.empty()) {
      std::erase_if(state_.records, [&](const store::VerifyRecord& r) { return r.step == record.step; });
      state_.records.push_back(std::move(record));
      return;
    }
    try {
      if (!store::write_record(store_, record)) monitor_.note("the store can't be written to: no record is kept");
    } catch (const Error& error) {
      monitor_.warning(std::string(error.what()) + "; no record of this verify is kept");
    }
  }

  const VerifyOptions& options_;
  store::Store store_;
  std::optional<ops::ReplicaBlocks> replicas_;
  VerifyReport& report_;
  Monitor& monitor_;
  std::optional<Clock::time_point> deadline_;
  std::string state_path_;
  store::VerifyState state_;
};

}  // namespace

std::string_view to_string(DamageKind kind) {
  switch (kind) {
    case DamageKind::truncated: return "truncated";
    case DamageKind::altered: return "altered";
    case DamageKind::missing: return "missing";
    case DamageKind::unreadable: return "unreadable";
  }
  return "unknown";
}

bool VerifyReport::intact() const {
  return non_finite.empty() && std::all_of(damages.begin(), damages.end(), [](const Damage& d) { return d.repaired; });
}

VerifyReport verify(const VerifyOptions& options, Monitor& caller) {
  check_options(options);
  ops::ThrottledMonitor monitor(caller, options.bytes_per_second);
  const auto start = Clock::now();
  if (!options.state_file.empty()) store::require_state_file(options.state_file);
  VerifyReport report;
  if (const auto store = open_store(options, report)) {
    VerifyRun run(options, *store, report, monitor);
    if (options.what.selector.kind == Selector::Kind::id) {
      (void)run.verify_one(store->resolve(options.what.selector), std::nullopt);
    } else {
      run.verify_steps(steps_to_verify(*store, options.what.selector));
    }
    run.save_state();
    if (options.what.selector.kind == Selector::Kind::none) report_pending(*store, report);
  }
  report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return report;
}

}  // namespace ckpt
