// SPDX-License-Identifier: Apache-2.0
// Keeps stores alike, moving only what the other side lacks.
#pragma once

#include <ckpt/address.hpp>
#include <ckpt/export.hpp>
#include <ckpt/monitor.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ckpt {

/// How the ends of a sync are reached.
struct PeerOptions {
  std::vector<std::string> rsh = {"ssh"};  ///< called as RSH... [USER@]HOST COMMAND
  /// How long the other side may be silent. 0: as long as it likes.
  double timeout_seconds = 60;
  std::uint64_t bytes_per_second = 0;  ///< of what is sent; 0: as fast as it goes
  unsigned jobs = 0;
};

/// Something that happened to one checkpoint at one destination.
struct SyncItem {
  enum class Action {
    sent,     ///< is there now, verified and on stable storage; with dry_run: would be
    retired,  ///< was retired there, as it's here
    removed,
    kept,  ///< was to be removed, and stays for the reason said
    failed,
  };
  Action action = Action::sent;
  std::string destination;
  std::uint64_t step = 0;
  std::string id;
  std::uint64_t stored_bytes = 0;
  std::uint64_t moved_bytes = 0;  ///< of containers; less than all if some was there from an earlier try
  std::string reason;
};

/// Gets each item as it happens, and progress. Calls come from one thread at a time.
class CKPT_API SyncObserver : public Monitor {
 public:
  ~SyncObserver() override;
  virtual void item(const SyncItem& item);
};

struct SyncOptions {
  /// A store, as a path, [USER@]HOST:STORE or rclone:REMOTE:PATH. With `gather` several.
  std::vector<std::string> sources;
  Selector which;  ///< of the source; no selector: all that's committed, and what is retired
  std::vector<std::string> destinations;
  PeerOptions peer;
  bool replace = false;                     ///< a step with other content there gives way
  bool remove = false;                      ///< what isn't at the source is removed there, under the rules of a prune
  bool gather = false;                      ///< shards of sets that aren't complete travel too, and sets are completed
  bool dry_run = false;                     ///< say what would be done
  std::optional<std::uint64_t> min_copies;  ///< so many destinations must have it all; default: each
};

struct SyncDestination {
  std::string name;
  bool alike = false;      ///< it holds durably all that was to be there
  bool temporary = false;  ///< it's worth another try
  std::string failure;     ///< the first reason why it isn't
  std::uint64_t sent = 0;  ///< checkpoints and shards
  std::uint64_t removed = 0;
  std::uint64_t moved_bytes = 0;
  std::optional<std::uint64_t> newest_step;  ///< the newest committed one there, in the end
};

struct SyncReport {
  std::vector<SyncDestination> destinations;
  double seconds = 0;

  [[nodiscard]] CKPT_API std::uint64_t alike() const;
};

/// Brings every destination what it lacks; one that fails doesn't hold up the others. What arrived is kept for the next
/// try, and nothing is visible there before it's verified and on stable storage.
///
/// Errors: invalid_argument, and what keeps the source from being read: not_found, busy (not reachable), io. What goes
/// wrong at a destination is in the report.
[[nodiscard]] CKPT_API SyncReport sync(const SyncOptions& options, SyncObserver& observer);

/// How far a destination that is followed has come.
struct ReplicaState {
  std::string name;
  bool alike = false;                        ///< it holds all that the source held when it was last compared
  std::string failure;                       ///< why not
  std::optional<std::uint64_t> newest_step;  ///< the newest committed one there
  std::uint64_t lag_checkpoints = 0;         ///< committed at the source and newer than that
  double lag_seconds = 0;                    ///< since it was last known to be alike
  std::uint64_t syncs = 0;
  std::uint64_t failures = 0;
  std::uint64_t moved_bytes = 0;
};

/// Calls come from one thread at a time, but not always the same.
class CKPT_API FollowObserver : public SyncObserver {
 public:
  ~FollowObserver() override;
  /// After each comparison or failure, and from time to time while it lags behind.
  virtual void replica(const ReplicaState& state);
  /// True: bring all destinations alike once more, and end.
  [[nodiscard]] virtual bool drain_requested() const;
};

struct FollowOptions {
  SyncOptions sync;              ///< one source; no dry run
  std::optional<int> until_pid;  ///< ends, after all destinations are alike, once this process has ended
};

/// Follows a store: sends each checkpoint as it's committed, to each destination at that one's own speed. What fails is
/// tried again, more and more seldom, up to every 30 seconds. Ends when asked to, or with the process.
///
/// Returns the destinations' last states. Errors: as sync(), for the source at the start; not_found (no such process).
[[nodiscard]] CKPT_API std::vector<ReplicaState> follow(const FollowOptions& options, FollowObserver& observer);

/// The far end of a remote shell: answers on two descriptors (borrowed) for the store at `path`, until the other side
/// hangs up. Errors: malformed (what comes is no message), busy (it's silent for too long), io.
CKPT_API void serve_sync(const std::string& path, int input_fd, int output_fd, const PeerOptions& peer,
                         Monitor& monitor);

struct SyncStreamOptions {
  std::string store;
  Selector which;
  /// What the other side has: records of its `ckpt-ls --format=tsv`, as (step, id).
  struct Known {
    std::uint64_t step = 0;
    std::string id;
  };
  std::vector<Known> have;
  int fd = 1;  ///< borrowed
  PeerOptions peer;
};

/// Writes what the other side lacks to a stream that checks itself. Returns how many checkpoints.
[[nodiscard]] CKPT_API std::uint64_t write_sync_stream(const SyncStreamOptions& options, SyncObserver& observer);

/// Reads such a stream into a store; each checkpoint is visible once it's verified and on stable storage. Errors:
/// malformed for one that is cut off or damaged: what came whole before is kept.
[[nodiscard]] CKPT_API std::uint64_t read_sync_stream(const std::string& store, bool replace, int fd,
                                                      const PeerOptions& peer, SyncObserver& observer);

}  // namespace ckpt
