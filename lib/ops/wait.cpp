// SPDX-License-Identifier: Apache-2.0
// Waiting for others to make durable what was handed over: a look every few milliseconds at spools, sets and steps.
#include <ckpt/wait.hpp>

#include "core/stop.hpp"
#include "doors/spool_places.hpp"
#include "format/damaged.hpp"
#include "os/file_lock.hpp"
#include "store/attempts.hpp"
#include "store/pending_set.hpp"
#include "store/skipping.hpp"
#include "store/store.hpp"

#include <ckpt/error.hpp>

#include <chrono>
#include <map>
#include <set>
#include <thread>

namespace ckpt {
namespace {

using Clock = std::chrono::steady_clock;
using doors::Entry;
using doors::Spool;
using doors::Stage;

constexpr auto look_pause = std::chrono::milliseconds(25);
constexpr auto worker_pause = std::chrono::seconds(1);

/// A save that is on its way.
struct Moving {
  std::string reason;    ///< what it waits for
  bool accepted = true;  ///< false: it may still be given back
  std::uint64_t attempt = 0;
};

struct Failed {
  std::string reason;
  std::int64_t handed_over_ns = 0;
};

/// All that is on its way at one moment, by step.
struct Look {
  std::map<std::uint64_t, Moving> moving;
  std::map<std::uint64_t, Failed> failed;
  std::map<std::uint64_t, std::string> skipped;  ///< with the reason
  std::uint64_t attempt = 0;
};

class Waiter {
 public:
  Waiter(const WaitOptions& options, Monitor& monitor)
      : options_(options), monitor_(monitor), store_(store::Store::open(options.what.store)) {}

  WaitReport run() {
    const auto start = Clock::now();
    Look look = this->look();
    std::set<std::uint64_t> waiting = targets(look);
    WaitReport report;
    std::map<std::uint64_t, WaitOutcome> outcomes;
    while (true) {
      for (auto step = waiting.begin(); step != waiting.end();) {
        outcomes[*step] = outcome_of(*step, look);
        step = is_final(outcomes[*step].state) ? waiting.erase(step) : std::next(step);
      }
      if (waiting.empty()) break;
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      if (options_.timeout_seconds && seconds >= *options_.timeout_seconds) {
        report.timed_out = true;
        break;
      }
      require_no_stop(monitor_);
      start_workers();
      std::this_thread::sleep_for(look_pause);
      look = this->look();
    }
    // What is newer makes up for what was skipped, unless that was asked for.
    const std::uint64_t newest = store_.steps().empty() ? 0 : store_.steps().back();
    for (auto& [step, outcome] : outcomes) {
      const bool is_made_up_for = outcome.state == SaveState::skipped && step < newest && !asked_for_one();
      if (!is_made_up_for) report.outcomes.push_back(std::move(outcome));
    }
    report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return report;
  }

 private:
  [[nodiscard]] bool asked_for_one() const { return options_.what.selector.kind == Selector::Kind::step; }

  static bool is_final(SaveState state) {
    return state == SaveState::durable || state == SaveState::failed || state == SaveState::skipped;
  }

  /// Spools before sets, sets before steps: a save moves the other way, and is seen in one of them.
  Look look() {
    const std::uint64_t attempt = store::highest_attempt(store_);
    Look look;
    look.attempt = attempt;
    spools_ = doors::reachable_spools(store_.path(), options_.spools);
    for (const Spool& spool : spools_) {
      for (const Stage stage : {Stage::incoming, Stage::staged}) {
        for (const Entry& entry : spool.entries(stage)) {
          if (entry.name.set.attempt < attempt) continue;
          const auto trouble = doors::read_trouble(entry);
          look.moving[entry.name.set.step] = {.reason = trouble ? trouble->reason : "staged",
                                              .accepted = stage == Stage::staged,
                                              .attempt = entry.name.set.attempt};
        }
      }
      for (const Entry& entry : spool.entries(Stage::failed)) {
        if (entry.name.set.attempt >= attempt) note_failure(entry, look);
      }
    }
    const std::vector<std::uint64_t> steps = store_.steps();
    const auto is_newer = [&](std::uint64_t step) { return steps.empty() || step > steps.back(); };
    for (const store::SetContent& set : store::pending_sets(store_)) {
      if (set.key.attempt < attempt || (!asked_for_one() && !is_newer(set.key.step))) continue;
      look.moving.try_emplace(set.key.step,
                              Moving{.reason = set.complete() ? "complete" : "written; other ranks are missing",
                                     .accepted = true,
                                     .attempt = set.key.attempt});
    }
    for (const store::SkippedSet& set : store::skipped_sets(store_)) {
      if (set.key.attempt >= attempt && (asked_for_one() || is_newer(set.key.step)))
        look.skipped.emplace(set.key.step, set.reason);
    }
    return look;
  }

  static void note_failure(const Entry& entry, Look& look) {
    const auto trouble = doors::read_trouble(entry);
    Failed failed{.reason = (trouble ? trouble->reason : std::string("for a reason that isn't known")) +
                            "; it's kept in '" + entry.path + "'",
                  .handed_over_ns = doors::now_ns()};
    try {
      failed.handed_over_ns = doors::read_ticket(entry).created_ns;
    } catch (const Error&) {
      // Its ticket can't be read: perhaps that's why it failed. Then it counts as the newest.
    }
    look.failed[entry.name.set.step] = std::move(failed);
  }

  std::set<std::uint64_t> targets(const Look& look) const {
    const Selector& selector = options_.what.selector;
    std::set<std::uint64_t> steps;
    if (selector.kind == Selector::Kind::none) {
      for (const auto& [step, moving] : look.moving) steps.insert(step);
      for (const auto& [step, failed] : look.failed) steps.insert(step);
      for (const auto& [step, reason] : look.skipped) steps.insert(step);
      return steps;
    }
    if (selector.kind != Selector::Kind::step)
      throw Error(Errc::invalid_argument, "'" + to_string(options_.what) + "' names no step to wait for");
    return {selector.step};
  }

  WaitOutcome outcome_of(std::uint64_t step, const Look& look) {
    WaitOutcome outcome{.step = step, .state = SaveState::staged, .reason = {}, .id = {}};
    if (const auto failed = look.failed.find(step);
        failed != look.failed.end() && !is_made_good(step, failed->second)) {
      outcome.state = SaveState::failed;
      outcome.reason = failed->second.reason;
      return outcome;
    }
    if (const auto moving = look.moving.find(step); moving != look.moving.end()) {
      seen_[step] = moving->second;
      outcome.reason = moving->second.reason;
      return outcome;
    }
    // Nothing is on its way any more: then it has arrived, or never will.
    if (const auto committed = store_.find(step)) {
      outcome.state = SaveState::durable;
      outcome.id = to_hex(committed->manifest.id);
      return outcome;
    }
    const auto skipped = look.skipped.find(step);
    if (const auto seen = seen_.find(step); skipped == look.skipped.end() && seen != seen_.end()) {
      const bool is_over = seen->second.attempt < look.attempt;
      // What was accepted goes by becoming durable; then it may be pruned before anyone looks.
      outcome.state = is_over || !seen->second.accepted ? SaveState::failed : SaveState::durable;
      if (is_over) outcome.reason = "its attempt is over";
      if (!is_over && !seen->second.accepted) outcome.reason = "its producer died, and its input was given back";
      return outcome;
    }
    if (skipped == look.skipped.end()) {
      throw Error(Errc::not_found, "'" + store_.address(step) + "' is neither stored nor on its way")
          .with_hint("ckpt-ls --pending lists what is on its way; it's not here if its spool is on another host");
    }
    outcome.state = SaveState::skipped;
    outcome.reason = skipped->second;
    return outcome;
  }

  /// One that was asked for by its step, and was stored all the same after that had failed.
  [[nodiscard]] bool is_made_good(std::uint64_t step, const Failed& failed) const {
    if (!asked_for_one()) return false;
    const auto committed = store_.find(step);
    return committed && committed->manifest.created &&
           *committed->manifest.created > failed.handed_over_ns / 1'000'000'000;
  }

  void start_workers() {
    if (!options_.start_worker || Clock::now() < next_start_) return;
    next_start_ = Clock::now() + worker_pause;
    for (const Spool& spool : spools_) {
      const bool has_work = !spool.entries(Stage::staged).empty() || !spool.entries(Stage::incoming).empty();
      if (has_work && !doors::is_drained_by_someone(spool)) options_.start_worker(spool.path());
    }
  }

  const WaitOptions& options_;
  Monitor& monitor_;
  store::Store store_;
  std::vector<Spool> spools_;
  std::map<std::uint64_t, Moving> seen_;  ///< what was on its way
  Clock::time_point next_start_ = Clock::now();
};

}  // namespace

WaitReport wait(const WaitOptions& options, Monitor& monitor) { return Waiter(options, monitor).run(); }

}  // namespace ckpt
