// SPDX-License-Identifier: Apache-2.0
// Syncing: compare what both sides hold, send what's missing; a thread for each destination.
#include <ckpt/sync.hpp>

#include "core/stop.hpp"
#include "format/manifest.hpp"
#include "ops/shared_source.hpp"
#include "ops/shared_sync_observer.hpp"
#include "ops/sync_ends.hpp"
#include "ops/sync_plan.hpp"
#include "ops/sync_sender.hpp"
#include "transport/remote_shell.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

namespace ckpt {
namespace {

using Clock = std::chrono::steady_clock;
using transport::Inventory;

void check_options(const SyncOptions& options) {
  const auto refuse = [](const char* why) { throw Error(Errc::invalid_argument, why); };
  if (options.sources.empty()) refuse("there is no source");
  if (options.sources.size() > 1 && !options.gather) refuse("only a gathering sync has several sources");
  if (options.destinations.empty()) refuse("there is no destination");
  if (options.gather && options.destinations.size() > 1) refuse("shards are gathered in one destination");
  if (options.gather && options.remove) refuse("what is gathered has several sources, and removal follows one");
  if (options.remove && options.which.kind != Selector::Kind::none)
    refuse("removal follows a whole store, not a step of it");
  if (options.min_copies && *options.min_copies > options.destinations.size())
    refuse("there are fewer destinations than copies are asked for");
}

/// Smaller ones go as they are: looking for less costs more.
constexpr std::uint64_t least_worth = 1U << 20U;

/// One source to one destination.
class Leg {
 public:
  Leg(const SyncOptions& options, ops::SharedSource& source, const Inventory& here, SyncObserver& observer,
      SyncDestination& result)
      : options_(options), source_(source), here_(here), observer_(observer), result_(result) {}

  void run() {
    try {
      const auto destination = ops::open_replica(result_.name, options_.peer, observer_);
      bool agreed = bring_alike(*destination, here_);
      // What the source had is gone or stored in another way by now: what has it got, then?
      for (rounds_left_ = rounds; !agreed && rounds_left_ > 0; --rounds_left_)
        agreed = bring_alike(*destination, source_.inventory());
      for (const auto& entry : destination->inventory().checkpoints) {
        if (!entry.retired) result_.newest_step = std::max(result_.newest_step.value_or(0), entry.identity.step);
      }
      result_.alike = result_.failure.empty();
    } catch (const Error& error) {
      fail(error.what(), error.code() == Errc::busy);
      if (error.code() == Errc::interrupted) result_.temporary = true;
    } catch (const std::exception& error) {
      fail(error.what(), false);
    }
  }

 private:
  static constexpr int rounds = 2;

  void fail(const std::string& why, bool temporary) {
    if (!result_.failure.empty()) return;
    result_.failure = why;
    result_.temporary = temporary;
  }

  /// False if the source isn't any more what it was, and it's worth another look.
  bool bring_alike(transport::Replica& destination, const Inventory& here) {
    const Inventory there = destination.inventory();
    const ops::SyncRequest request{.chosen = ops::choose_checkpoints(here, options_.which, source_.name()),
                                   .whole = options_.which.kind == Selector::Kind::none,
                                   .replace = options_.replace,
                                   .remove = options_.remove,
                                   .gather = options_.gather};
    const ops::SyncPlan plan = ops::plan_sync(request, here, there, result_.name);
    for (const std::string& conflict : plan.conflicts) {
      fail(conflict, false);
      if (!told_.insert(conflict).second) continue;
      observer_.item({.action = SyncItem::Action::failed, .destination = result_.name, .reason = conflict});
    }
    for (const format::BaseCheckpoint& identity : plan.retire) {
      if (!options_.dry_run) destination.retire(identity);
      tell(SyncItem::Action::retired, identity, 0, 0);
    }
    ops::SyncSender sender(source_, destination, options_.peer, options_.replace, observer_);
    std::uint64_t total = 0;
    for (const auto& entry : plan.send) total += entry.stored_bytes;
    for (const auto& shard : plan.shards) total += shard.size;
    sender.expect(total);
    bool agreed = true;
    if (!send_alone(sender, plan)) {
      std::optional<format::BaseCheckpoint> common = ops::newest_whole(here_, there);
      for (const transport::ReplicaCheckpoint& entry : plan.send) {
        if (send_difference(sender, entry, common)) continue;
        agreed = send(sender, entry) && agreed;
        if (!entry.retired && entry.bases.empty()) common = entry.identity;
      }
    }
    for (const transport::ReplicaShard& shard : plan.shards) agreed = send(sender, shard) && agreed;
    if (!agreed || plan.remove.empty()) return agreed;
    if (result_.failure.empty())
      remove(destination, plan.remove);
    else
      observer_.warning("nothing is removed from '" + result_.name + "', since not all could be sent");
    return true;
  }

  [[nodiscard]] bool is_stale(const Error& error) const { return error.code() == Errc::not_found && rounds_left_ > 0; }

  bool send(ops::SyncSender& sender, const transport::ReplicaCheckpoint& entry) {
    require_no_stop(observer_);
    try {
      const std::uint64_t moved = options_.dry_run ? 0 : sender.send(entry);
      result_.moved_bytes += moved;
      ++result_.sent;
      tell(SyncItem::Action::sent, entry.identity, entry.stored_bytes, moved);
    } catch (const Error& error) {
      if (is_stale(error)) return false;
      // The connection's end is the destination's end; what is wrong with one checkpoint isn't.
      if (error.code() == Errc::busy || error.code() == Errc::interrupted || error.code() == Errc::malformed ||
          error.code() == Errc::no_space)
        throw;
      fail(error.what(), false);
      observer_.item({.action = SyncItem::Action::failed,
                      .destination = result_.name,
                      .step = entry.identity.step,
                      .id = to_hex(entry.identity.id),
                      .reason = error.what()});
    }
    return true;
  }

  /// One that is asked for alone goes without its bases, if that's less. False if it's more.
  bool send_alone(ops::SyncSender& sender, const ops::SyncPlan& plan) {
    if (plan.only_as_bases.empty() || options_.dry_run || plan.send.size() != plan.only_as_bases.size() + 1)
      return false;
    std::uint64_t with_bases = 0;
    for (const auto& entry : plan.send) with_bases += entry.stored_bytes;
    return send_other_form(sender, {.checkpoint = plan.send.back().identity,
                                    .without = plan.only_as_bases,
                                    .against = std::nullopt,
                                    .most = with_bases});
  }

  /// What is stored here in full, so that it's read fast, needn't go so if the destination has most of it.
  bool send_difference(ops::SyncSender& sender, const transport::ReplicaCheckpoint& entry,
                       const std::optional<format::BaseCheckpoint>& common) {
    // Over a network it pays; on this machine copying is cheaper than encoding.
    if (!common || options_.dry_run || !transport::is_remote(result_.name)) return false;
    if (!entry.bases.empty() || entry.stored_bytes < least_worth) return false;
    try {
      return send_other_form(
          sender, {.checkpoint = entry.identity, .without = {}, .against = common, .most = entry.stored_bytes / 2});
    } catch (const Error& error) {
      // Its chains there may be too long for it, or something has changed: then as it is.
      if (error.code() != Errc::unsupported && error.code() != Errc::not_found && error.code() != Errc::damaged) throw;
      observer_.note(error.what());
      return false;
    }
  }

  bool send_other_form(ops::SyncSender& sender, const transport::FormRequest& request) {
    const auto text = source_.other_form(request);
    if (!text) return false;
    const std::uint64_t moved = sender.send_other_form({.identity = request.checkpoint, .bases = {}}, *text);
    result_.moved_bytes += moved;
    ++result_.sent;
    tell(SyncItem::Action::sent, request.checkpoint, moved, moved);
    return true;
  }

  /// A set that is committed meanwhile isn't where it was.
  bool send(ops::SyncSender& sender, const transport::ReplicaShard& shard) {
    require_no_stop(observer_);
    std::uint64_t moved = 0;
    try {
      if (!options_.dry_run) moved = sender.send(shard);
    } catch (const Error& error) {
      if (is_stale(error)) return false;
      throw;
    }
    result_.moved_bytes += moved;
    ++result_.sent;
    tell(SyncItem::Action::sent, {.id = {}, .step = shard.set.step}, shard.size, moved);
    return true;
  }

  void remove(transport::Replica& destination, const std::vector<std::uint64_t>& steps) {
    if (options_.dry_run) {
      for (const std::uint64_t step : steps) tell(SyncItem::Action::removed, {.id = {}, .step = step}, 0, 0);
      return;
    }
    const transport::Removal removal = destination.remove(steps);
    result_.removed += removal.removed.size();
    for (const std::uint64_t step : removal.removed) tell(SyncItem::Action::removed, {.id = {}, .step = step}, 0, 0);
    for (const auto& [step, why] : removal.refused) {
      observer_.item(
          {.action = SyncItem::Action::kept, .destination = result_.name, .step = step, .id = {}, .reason = why});
    }
  }

  void tell(SyncItem::Action action, const format::BaseCheckpoint& identity, std::uint64_t stored,
            std::uint64_t moved) {
    observer_.item({.action = action,
                    .destination = result_.name,
                    .step = identity.step,
                    .id = identity.id == Digest{} ? std::string() : to_hex(identity.id),
                    .stored_bytes = stored,
                    .moved_bytes = moved,
                    .reason = {}});
  }

  const SyncOptions& options_;
  ops::SharedSource& source_;
  const Inventory& here_;
  SyncObserver& observer_;
  SyncDestination& result_;
  int rounds_left_ = rounds;
  std::set<std::string> told_;
};

void run_legs(const SyncOptions& options, const std::string& source_name, SyncObserver& observer, SyncReport& report) {
  ops::SharedSource source(ops::open_replica(source_name, options.peer, observer));
  if (options.destinations.size() == 1) source.keep_nothing();
  const Inventory here = source.inventory();
  if (!here.is_store) throw Error(Errc::not_found, "'" + source_name + "' is not a store");
  (void)ops::choose_checkpoints(here, options.which, source_name);  // says at once if it isn't there
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < report.destinations.size(); ++i)
    threads.emplace_back([&, i] { Leg(options, source, here, observer, report.destinations[i]).run(); });
  Leg(options, source, here, observer, report.destinations.front()).run();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

SyncObserver::~SyncObserver() = default;
void SyncObserver::item(const SyncItem&) {}

std::uint64_t SyncReport::alike() const {
  return static_cast<std::uint64_t>(
      std::count_if(destinations.begin(), destinations.end(), [](const SyncDestination& d) { return d.alike; }));
}

SyncReport sync(const SyncOptions& options, SyncObserver& caller) {
  check_options(options);
  const auto start = Clock::now();
  ops::SharedSyncObserver observer(caller);
  SyncReport report;
  for (const std::string& name : options.destinations) report.destinations.push_back({.name = name, .failure = {}});
  for (const std::string& source : options.sources) run_legs(options, source, observer, report);
  report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return report;
}

}  // namespace ckpt
