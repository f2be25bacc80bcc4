// SPDX-License-Identifier: Apache-2.0
// The server's loop: one save at a time from each door in turn, chores beside it in idle time.
#include <ckpt/serve.hpp>

#include "doors/doors.hpp"
#include "doors/spool_inlet.hpp"
#include "doors/spool_places.hpp"
#include "ops/locked_observer.hpp"
#include "ops/serve_chores.hpp"
#include "ops/serve_claim.hpp"
#include "ops/serve_replicas.hpp"
#include "os/priority.hpp"
#include "os/small_file.hpp"
#include "store/pending_set.hpp"
#include "store/store.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <thread>

namespace ckpt {
namespace {

using Clock = std::chrono::steady_clock;
using doors::Inlet;
using doors::Spool;
using doors::SpoolInlet;

constexpr auto busy_pause = std::chrono::milliseconds(50);
constexpr auto idle_pause = std::chrono::milliseconds(500);
/// Who lists a spool, or starts a worker, holds its lock for an instant.
constexpr int lock_tries = 5;
constexpr auto lock_pause = std::chrono::milliseconds(10);

/// The caller's observer, for the loop and the chores.
class SharedObserver final : public ops::LockedObserver<ServeObserver> {
 public:
  using LockedObserver::LockedObserver;
  void served(const ServedSave& save) override {
    locked([&] { observer().served(save); });
  }
  void turn(const std::vector<DoorState>& doors) override {
    locked([&] { observer().turn(doors); });
  }
  void chore_failed(std::string_view name, std::string_view reason) override {
    locked([&] { observer().chore_failed(name, reason); });
  }
  void replica(const ReplicaState& state) override {
    locked([&] { observer().replica(state); });
  }
};

class Server {
 public:
  Server(const ServeOptions& options, ServeObserver& observer)
      : options_(options),
        observer_(observer),
        chores_(options.chores, options.store, observer_),
        replicas_(options, observer_) {}

  void run() {
    open_queues();
    while (!observer_.stop_requested()) {
      open_spools();
      const bool served = serve_each_door();
      chores_.set_idle(!served);
      observer_.turn(door_states());
      if (served) continue;
      if (options_.until_idle && all_drained()) {
        tell_state();
        if (nothing_left()) return;
      }
      help_sets();
      std::this_thread::sleep_for(busy_pause);
    }
    tell_state();
  }

 private:
  void open_queues() {
    for (const std::string& address : options_.from) {
      const store::Store store = store::Store::open_for_writing(options_.store, true);
      queues_.push_back(doors::open_queue_inlet(address, store.scratch(), options_));
    }
  }

  [[nodiscard]] std::vector<Spool> known_spools() const {
    // One that isn't there yet, or not any more, may come.
    std::vector<std::string> there;
    std::copy_if(options_.spools.begin(), options_.spools.end(), std::back_inserter(there),
                 [](const std::string& path) { return Spool::find(path).has_value(); });
    if (!options_.only_these_spools) return doors::reachable_spools(options_.store, there);
    std::vector<Spool> spools;
    for (const std::string& path : there) spools.push_back(*Spool::find(path));
    return spools;
  }

  /// Takes over those that no one has.
  void open_spools() {
    if (Clock::now() < next_look_) return;
    next_look_ = Clock::now() + idle_pause;
    std::vector<Spool> known;
    try {
      known = known_spools();
    } catch (const Error& error) {
      note_trouble(options_.store, error.what());
    }
    for (Spool& spool : known) {
      const std::string path = spool.path();
      if (spools_.contains(path)) continue;
      const int tries = options_.until_idle ? lock_tries : 1;
      for (int i = 0; i < tries; ++i) {
        if (i > 0) std::this_thread::sleep_for(lock_pause);
        if (auto inlet = open_spool(spool)) {
          spools_.emplace(path, std::move(inlet));
          break;
        }
      }
    }
  }

  /// What is wrong with one spool is no reason to leave the others.
  std::unique_ptr<SpoolInlet> open_spool(const Spool& spool) {
    try {
      return SpoolInlet::open(spool, options_.store, observer_);
    } catch (const Error& error) {
      note_trouble(spool.path(), error.what());
      return nullptr;
    }
  }

  bool serve_each_door() {
    bool served = false;
    for (const auto& [path, spool] : spools_) served = serve_one(*spool) || served;
    for (const auto& queue : queues_) served = serve_one(*queue) || served;
    return served;
  }

  bool serve_one(Inlet& inlet) {
    if (observer_.stop_requested()) return false;
    try {
      const auto claim = inlet.claim(observer_);
      troubles_.erase(inlet.name());
      if (!claim) return false;
      chores_.set_idle(false);
      observer_.served(ops::serve_claim(*claim, inlet.name(), options_, observer_));
      return true;
    } catch (const Error& error) {
      if (error.code() == Errc::interrupted) return false;
      note_trouble(inlet.name(), error.what());
      return false;
    }
  }

  /// Said once, not at every turn.
  void note_trouble(const std::string& door, const std::string& why) {
    std::string& known = troubles_[door];
    if (known != why) observer_.warning("'" + door + "': " + why);
    known = why;
  }

  [[nodiscard]] DoorState state_of(Inlet& inlet) {
    DoorState state{.door = inlet.name()};
    try {
      const doors::Backlog backlog = inlet.backlog();
      state.saves = backlog.saves;
      state.bytes = backlog.bytes;
      state.oldest_seconds = backlog.oldest_seconds;
      state.dead_letters = backlog.dead_letters;
    } catch (const Error& error) {
      state.trouble = error.what();
    }
    return state;
  }

  /// Looked at again after a while only: a queue is on the other side of a network.
  const std::vector<DoorState>& door_states() {
    if (Clock::now() < next_state_) return states_;
    next_state_ = Clock::now() + idle_pause;
    states_.clear();
    for (const auto& [path, spool] : spools_) states_.push_back(state_of(*spool));
    for (const auto& queue : queues_) states_.push_back(state_of(*queue));
    return states_;
  }

  void tell_state() {
    next_state_ = Clock::now();
    observer_.turn(door_states());
  }

  /// Throws busy where a queue can't say.
  [[nodiscard]] bool all_drained() const {
    return std::all_of(spools_.begin(), spools_.end(), [](const auto& spool) { return spool.second->is_drained(); }) &&
           std::all_of(queues_.begin(), queues_.end(), [](const auto& queue) { return queue->backlog().saves == 0; });
  }

  /// What is staged after the locks are let go of finds them free and starts another; what was staged before is seen.
  bool nothing_left() {
    spools_.clear();
    next_look_ = Clock::now();
    for (const Spool& spool : known_spools()) {
      if (!spool.entries(doors::Stage::staged).empty() && !doors::is_drained_by_someone(spool)) return false;
    }
    return true;
  }

  void help_sets() {
    if (options_.until_idle || Clock::now() < next_help_) return;
    next_help_ = Clock::now() + std::chrono::seconds(1);
    try {
      if (os::exists(options_.store + "/" + store::description_file))
        store::help_complete_sets(store::Store::open_for_writing(options_.store, false));
      troubles_.erase(options_.store);
    } catch (const Error& error) {
      note_trouble(options_.store, error.what());
    }
  }

  const ServeOptions& options_;
  SharedObserver observer_;
  std::map<std::string, std::unique_ptr<SpoolInlet>> spools_;
  std::vector<std::unique_ptr<Inlet>> queues_;
  std::map<std::string, std::string> troubles_;
  std::vector<DoorState> states_;
  Clock::time_point next_look_ = Clock::now();
  Clock::time_point next_state_ = Clock::now();
  Clock::time_point next_help_ = Clock::now();
  // Last: their threads use the observer.
  ops::ChoreRunner chores_;
  ops::ReplicaFeed replicas_;
};

}  // namespace

ServeObserver::~ServeObserver() = default;
void ServeObserver::served(const ServedSave&) {}
void ServeObserver::turn(const std::vector<DoorState>&) {}
void ServeObserver::chore_failed(std::string_view, std::string_view) {}
void ServeObserver::replica(const ReplicaState&) {}

void serve(const ServeOptions& options, ServeObserver& observer) {
  if (options.store.empty()) throw Error(Errc::invalid_argument, "the store has an empty name");
  if (options.spools.empty() && options.from.empty()) (void)store::Store::open(options.store);  // says why not
  if (options.give_way) {
    os::give_way_to_others();
    os::let_session_give_way();
  }
  Server(options, observer).run();
}

}  // namespace ckpt
