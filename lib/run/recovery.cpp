// SPDX-License-Identifier: Apache-2.0
#include "run/recovery.hpp"

#include "doors/spool_places.hpp"
#include "format/damaged.hpp"
#include "os/fd.hpp"
#include "os/file_lock.hpp"
#include "os/small_file.hpp"
#include "store/attempts.hpp"
#include "store/retire.hpp"
#include "store/store.hpp"
#include "store/swap.hpp"
#include "store/verify_records.hpp"

#include <ckpt/error.hpp>
#include <ckpt/serve.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <thread>
#include <utility>

namespace ckpt::run {
namespace {

/// Ends a drain when what is left can't be stored for now: a full disk stays full.
class DrainObserver final : public ServeObserver {
 public:
  explicit DrainObserver(Monitor& monitor) : monitor_(monitor) {}

  void progress(const Progress& progress) override { monitor_.progress(progress); }
  void warning(std::string_view message) override { monitor_.warning(message); }
  [[nodiscard]] bool stop_requested() const override { return in_vain_ || monitor_.stop_requested(); }

  void served(const ServedSave& save) override {
    monitor_.progress({.stage = "write"});
    if (!save.will_retry && save.state != SaveState::failed) return;
    left_.push_back(fmt::format("step {} of rank {}: {}", save.step, save.rank, save.reason));
    in_vain_ = save.will_retry;
  }

  void turn(const std::vector<DoorState>& doors) override {
    std::uint64_t waiting = 0;
    for (const DoorState& door : doors) waiting += door.saves;
    // Another process may be at work on what waits.
    if (waiting != std::exchange(waiting_, waiting)) monitor_.progress({.stage = "write"});
  }

  [[nodiscard]] bool is_in_vain() const { return in_vain_; }
  std::vector<std::string> take_left() { return std::move(left_); }

 private:
  Monitor& monitor_;
  std::vector<std::string> left_;
  std::atomic<bool> in_vain_ = false;
  std::uint64_t waiting_ = 0;
};

void mark_poisoned(const store::Store& store, std::uint64_t step, const std::string& why) {
  const os::FileLock lock(store::lock_path(store), store::swap_patience);
  const auto checkpoint = store.find(step);
  if (!checkpoint || checkpoint->manifest.marks.contains("poisoned")) return;
  format::Manifest marked = checkpoint->manifest;
  marked.marks["poisoned"] = why;
  store::swap_manifest(store, *checkpoint, marked);
}

class Choice {
 public:
  Choice(const RecoveryRequest& request, const store::Store& store, Recovery& recovery, Monitor& monitor)
      : request_(request), store_(store), recovery_(recovery), monitor_(monitor) {}

  void make() {
    auto steps = store_.steps();
    std::reverse(steps.begin(), steps.end());
    for (const std::uint64_t step : steps) {
      const std::string why_not = reason_against(step);
      if (why_not.empty()) {
        recovery_.step = step;
        return;
      }
      recovery_.passed_over.push_back({.step = step, .reason = why_not});
    }
  }

 private:
  /// Empty if the checkpoint is good.
  std::string reason_against(std::uint64_t step) {
    try {
      if (const auto checkpoint = store_.find(step)) {
        if (checkpoint->manifest.is_marked()) {
          const std::string mark = checkpoint->manifest.why_never_latest();
          return fmt::format("it's {}: {}", mark, checkpoint->manifest.marks.at(mark));
        }
        return reason_against_content(*checkpoint);
      }
      return "it has no manifest";
    } catch (const format::Damaged& damage) {
      if (request_.from.empty()) return damage.what();
      return verified(step, request_.level);
    }
  }

  std::string reason_against_content(const store::Checkpoint& checkpoint) {
    const std::uint64_t step = checkpoint.manifest.step;
    if (!seen_.insert(checkpoint.manifest.identity()).second) return {};
    // What a thorough look has found, a quick one mustn't overlook.
    const bool is_suspected =
        store::verdict_of(store::read_verdicts(store_), step, checkpoint.manifest.id) == store::Verdict::damaged;
    std::string why_not = verified(step, is_suspected ? VerifyLevel::deep : request_.level);
    if (!why_not.empty()) return why_not;
    for (const format::BaseCheckpoint& base : checkpoint.manifest.bases) {
      const auto found = store_.find(base.step);
      // One that was retired is checked as it's read.
      if (!found || found->manifest.identity() != base) continue;
      why_not = reason_against_content(*found);
      if (!why_not.empty()) return fmt::format("step {}, which it's stored against: {}", base.step, why_not);
    }
    return {};
  }

  /// Empty if it's intact, or has been mended.
  std::string verified(std::uint64_t step, VerifyLevel level) {
    VerifyOptions options;
    options.what = {.store = store_.path(), .selector = {.kind = Selector::Kind::step, .step = step}};
    options.level = level;
    options.jobs = request_.jobs;
    const VerifyReport first = verify(options, monitor_);
    if (first.intact() || request_.from.empty()) return first.intact() ? "" : describe(first);
    options.level = std::max(level, VerifyLevel::stored);
    options.repair = true;
    options.from = request_.from;
    options.peer = request_.peer;
    const VerifyReport second = verify(options, monitor_);
    if (!second.intact()) return describe(second);
    recovery_.mended.push_back(fmt::format("step {} is mended from a replica: {}", step, describe(first)));
    return {};
  }

  static std::string describe(const VerifyReport& report) {
    if (report.damages.empty()) return "it isn't intact";
    const Damage& damage = report.damages.front();
    return damage.shard.empty() ? damage.detail : fmt::format("{}: {}", damage.shard, damage.detail);
  }

  const RecoveryRequest& request_;
  const store::Store& store_;
  Recovery& recovery_;
  Monitor& monitor_;
  std::set<format::BaseCheckpoint> seen_;
};

void look_at(const store::Store& store, std::uint64_t step, StoreNews& news) {
  try {
    const auto checkpoint = store.find(step);
    if (!checkpoint || checkpoint->manifest.is_marked()) return;
    if (news.newest) {
      news.has_older = true;
      return;
    }
    news.newest = step;
    news.stored_bytes = checkpoint->manifest.stored_bytes();
    const auto& timings = checkpoint->manifest.timings;
    if (const auto took = timings.find("save"); took != timings.end()) news.save_seconds = took->second;
  } catch (const format::Damaged&) {
    return;
  }
}

/// What changes while someone writes to the store.
std::uint64_t written_so_far(const std::string& path) {
  const std::string scratch = store::Store::open(path).scratch();
  std::uint64_t bytes = 0;
  for (const std::string& name : os::list_directory(scratch).value_or(std::vector<std::string>{})) {
    const auto found = os::stat_path(scratch + "/" + name, false);
    if (found) bytes += static_cast<std::uint64_t>(found->st_size);
  }
  return bytes;
}

/// Waits for workers that have what is staged in hand. False if something is left that no one works on.
bool others_drain(const std::string& store, Monitor& monitor) {
  std::uint64_t before = 0;
  while (true) {
    std::uint64_t waiting = 0;
    for (const doors::Spool& spool : doors::reachable_spools(store, {})) {
      const auto staged = spool.entries(doors::Stage::staged).size();
      if (staged > 0 && !doors::is_drained_by_someone(spool)) return false;
      waiting += staged;
    }
    if (waiting == 0) return true;
    const std::uint64_t now = waiting + written_so_far(store);
    if (now != before) monitor.progress({.stage = "write"});
    before = now;
    if (monitor.stop_requested()) throw Error(Errc::interrupted, "interrupted");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

class FetchObserver final : public SyncObserver {
 public:
  explicit FetchObserver(Monitor& monitor) : monitor_(monitor) {}
  void progress(const Progress& progress) override { monitor_.progress(progress); }
  void warning(std::string_view message) override { monitor_.warning(message); }
  [[nodiscard]] bool stop_requested() const override { return monitor_.stop_requested(); }

 private:
  Monitor& monitor_;
};

/// The newest checkpoint of the first replica that has one.
bool fetch_newest(const RecoveryRequest& request, Recovery& recovery, Monitor& monitor) {
  for (const std::string& replica : request.from) {
    try {
      SyncOptions options;
      options.sources = {replica};
      options.which.kind = Selector::Kind::latest;
      options.destinations = {request.store};
      options.peer = request.peer;
      FetchObserver observer(monitor);
      const SyncReport report = sync(options, observer);
      if (report.destinations.front().alike && report.destinations.front().newest_step) {
        recovery.mended.push_back(
            fmt::format("step {} is fetched from '{}'", *report.destinations.front().newest_step, replica));
        return true;
      }
      if (!report.destinations.front().failure.empty()) monitor.warning(report.destinations.front().failure);
    } catch (const Error& error) {
      if (error.code() == Errc::interrupted) throw;
      monitor.warning(fmt::format("replica '{}': {}", replica, error.what()));
    }
  }
  return false;
}

bool has_anything(const std::string& path) {
  try {
    const auto store = store::Store::open(path);
    return !store.steps().empty();
  } catch (const Error& error) {
    if (error.code() == Errc::not_found) return false;
    throw;
  }
}

}  // namespace

std::vector<std::string> drain(const std::string& store, unsigned jobs, Monitor& monitor) {
  ServeOptions options;
  options.store = store;
  options.until_idle = true;
  options.jobs = jobs;
  DrainObserver observer(monitor);
  do {
    try {
      serve(options, observer);
    } catch (const Error& error) {
      // Nothing was ever saved.
      if (error.code() == Errc::not_found) return {};
      throw;
    }
  } while (!observer.is_in_vain() && !others_drain(store, monitor));
  return observer.take_left();
}

StoreNews look(const std::string& path) {
  StoreNews news;
  try {
    const auto store = store::Store::open(path);
    news.highest_attempt = store::highest_attempt(store);
    news.free_bytes = os::free_space(path);
    const auto steps = store.steps();
    for (auto step = steps.rbegin(); step != steps.rend() && !news.has_older; ++step) look_at(store, *step, news);
  } catch (const Error& error) {
    if (error.code() != Errc::not_found) throw;
  }
  return news;
}

Recovery recover(const RecoveryRequest& request, Monitor& monitor) {
  Recovery recovery;
  if (!request.from.empty() && !has_anything(request.store)) (void)fetch_newest(request, recovery, monitor);
  const auto store = store::Store::open_for_writing(request.store, true);
  if (request.poisoned) mark_poisoned(store, *request.poisoned, request.why_poisoned);
  Choice(request, store, recovery, monitor).make();
  if (!recovery.step && !recovery.passed_over.empty()) {
    const auto& newest = recovery.passed_over.front();
    throw Error(Errc::not_found,
                fmt::format("store '{}' has {} checkpoints and none that is good; the newest, step {}: {}",
                            request.store, recovery.passed_over.size(), newest.step, newest.reason))
        .with_hint("mend one with ckpt-verify --repair --from=REPLICA, or begin in another store");
  }
  recovery.attempt = request.attempt.value_or(store::highest_attempt(store) + 1);
  store::open_attempt(store, recovery.attempt);
  if (recovery.step) store::retire_newer(store, *recovery.step, recovery.attempt);
  return recovery;
}

}  // namespace ckpt::run
