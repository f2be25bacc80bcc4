// SPDX-License-Identifier: Apache-2.0
// Makes durable what others handed over: drains spools and queues into a store.
#pragma once

#include <ckpt/export.hpp>
#include <ckpt/monitor.hpp>
#include <ckpt/save.hpp>
#include <ckpt/state.hpp>
#include <ckpt/sync.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ckpt {

/// What came of one save that was taken from a door.
struct ServedSave {
  std::string door;  ///< the spool or queue that it came through
  std::uint64_t step = 0;
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  SaveState state = SaveState::written;  ///< written, durable, skipped; failed: now among the dead letters
  bool will_retry = false;               ///< it's still staged, and tried again
  std::string reason;                    ///< why it failed, was skipped, or is tried again
  std::uint64_t raw_bytes = 0;
  std::uint64_t stored_bytes = 0;
  std::optional<double> stall_seconds;  ///< how long the producer waited until it was staged
  double write_seconds = 0;
  double commit_seconds = 0;
  double total_seconds = 0;  ///< since it was handed over, by the clocks of both hosts
};

/// What is waiting behind one door.
struct DoorState {
  std::string door;
  std::uint64_t saves = 0;
  std::uint64_t bytes = 0;
  double oldest_seconds = 0;
  std::uint64_t dead_letters = 0;
  std::string trouble;  ///< why it can't be reached; empty if it can
};

/// Upkeep in idle time. One server of a store runs a chore at a time; another takes over within a second of its death.
struct Chore {
  std::string name;                           ///< a plain word: it names the lock
  double pause_seconds = 1;                   ///< from one end to the next beginning
  std::function<void(Monitor& monitor)> run;  ///< its Error is reported, and no reason to end
};

/// Implemented by the caller. Calls of served() and turn() come from the thread that called serve().
class CKPT_API ServeObserver : public Monitor {
 public:
  ~ServeObserver() override;
  virtual void served(const ServedSave& save);
  /// Several times a second while there's nothing to save, and after each save.
  virtual void turn(const std::vector<DoorState>& doors);
  /// From the thread of the chores.
  virtual void chore_failed(std::string_view name, std::string_view reason);
  /// From the thread that follows the store.
  virtual void replica(const ReplicaState& state);
};

struct ServeOptions {
  std::string store;                ///< made when the first save arrives, if that asks for it
  std::vector<std::string> spools;  ///< besides those that the store tells of
  bool only_these_spools = false;   ///< and no others
  std::vector<std::string> from;    ///< queues, as redis://HOST:PORT[/DB]?key=NAME
  std::string queue_password;       ///< for all of them; empty: none
  bool until_idle = false;          ///< comes back once nothing is staged
  bool give_way = false;            ///< this whole process takes what processor and disk no one else wants
  std::vector<Chore> chores;
  std::vector<std::string> replicas;  ///< stores that are brought alike as checkpoints are committed
  PeerOptions peer;                   ///< how these are reached
  unsigned jobs = 0;                  ///< worker threads; 0: one a core
};

/// Serves until Monitor::stop_requested(): then the block in hand is finished, and the rest stays staged.
///
/// A save that can't be stored costs itself only: what fails twice goes to the dead letters of its door. What fails
/// for a reason that passes (no space, a changing store) is tried again, more and more seldom, up to every 30 seconds.
///
/// Errors: invalid_argument, not_found (no such store, and no spool or queue that could fill it), unsupported (a queue
/// in a build without it), io.
CKPT_API void serve(const ServeOptions& options, ServeObserver& observer);

}  // namespace ckpt
