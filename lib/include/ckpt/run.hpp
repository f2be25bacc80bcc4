// SPDX-License-Identifier: Apache-2.0
// Runs a training of many processes, and brings it back from its newest good checkpoint when it fails.
#pragma once

#include <ckpt/export.hpp>
#include <ckpt/sync.hpp>
#include <ckpt/verify.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt {

/// Why an attempt ended, or a rank.
enum class RunCause {
  exit,           ///< a rank ended with a status other than 0
  signal,         ///< a rank was killed by a signal
  out_of_memory,  ///< the kernel killed a rank for memory
  silence,        ///< no heartbeat for too long
  slow_start,     ///< no first heartbeat in time
  node,           ///< another node failed or is gone
  resize,         ///< no failure: ranks are added
};
[[nodiscard]] CKPT_API std::string_view to_string(RunCause cause);

enum class RunOutcome {
  finished,     ///< all ranks ended with 0
  failed,       ///< given up after RunOptions::max_restarts, or as too few slots or nodes are fit
  no_progress,  ///< given up: it failed again and again without a new checkpoint
  preempted,    ///< asked to end, and the state is safe as far as `detail` doesn't say otherwise
  killed,       ///< ended at once: a second interrupt, or who started it died
};
[[nodiscard]] CKPT_API std::string_view to_string(RunOutcome outcome);

/// One failure of one rank.
struct RunFailure {
  RunCause cause = RunCause::exit;
  std::uint64_t attempt = 0;
  std::uint32_t rank = 0;
  std::uint32_t local_rank = 0;
  std::int64_t pid = 0;
  int exit_status = 0;                  ///< of a rank that ended by itself
  int signal = 0;                       ///< that it died of
  std::optional<std::uint64_t> step;    ///< the last that it told of
  std::vector<std::string> last_lines;  ///< of its log, if it has one
  std::string detail;                   ///< one line for people
};

enum class RunEventKind {
  waiting,         ///< for other nodes, a health check, a pause before the next attempt
  started,         ///< ranks run
  heartbeat_lost,  ///< a rank is silent
  failed,          ///< a rank failed, and the attempt with it
  passed_over,     ///< a checkpoint isn't good, and an older one or a replica is taken
  poisoned,        ///< a checkpoint is marked, as the job keeps dying from it
  restored,        ///< what is resumed from is known (and, if asked for, restored)
  left_out,        ///< a slot, or a node
  resized,         ///< the next attempt has another number of ranks
  restarted,       ///< after a failure, ranks run again
  asked,           ///< the ranks were asked to save, or to save and end
  durable,         ///< a new checkpoint
  finished,        ///< it's over
};
[[nodiscard]] CKPT_API std::string_view to_string(RunEventKind kind);

/// Something that happened. What doesn't apply is unset.
struct RunEvent {
  RunEventKind kind = RunEventKind::started;
  std::string text;  ///< one line for people
  std::optional<std::uint64_t> attempt;
  std::optional<std::uint64_t> step;
  std::optional<std::uint32_t> rank;
  std::optional<std::uint32_t> ranks;  ///< how many run
  std::optional<double> seconds;       ///< how long what took: the recovery, the silence
  std::optional<RunFailure> failure;
};

struct RunRank {
  std::uint32_t rank = 0;
  std::int64_t pid = 0;
  std::optional<std::uint64_t> step;
  std::optional<double> loss;
  std::string status;                    ///< as it told
  std::optional<double> silent_seconds;  ///< since its last heartbeat, if it ever had one
};

/// How the job is doing.
struct RunState {
  std::uint64_t attempt = 0;
  std::uint32_t world_size = 0;
  std::vector<RunRank> ranks;  ///< of this node
  std::map<RunCause, std::uint64_t> restarts;
  double lost_seconds = 0;  ///< to each restart after a failure, from the last durable checkpoint or restart before
  std::uint64_t steps_redone = 0;  ///< between the last step told of and the step resumed from, over all failures
  std::optional<std::uint64_t> durable_step;
  std::optional<double> durable_age_seconds;  ///< since the newest checkpoint was seen to be durable
  std::optional<double> interval_seconds;
};

/// Implemented by the caller; calls come from the thread that called supervise().
class CKPT_API RunObserver {
 public:
  virtual ~RunObserver();
  virtual void event(const RunEvent& event);
  /// About once a second.
  virtual void state(const RunState& state);
  virtual void warning(std::string_view message);
};

struct RunOptions {
  std::vector<std::string> command;      ///< run once a rank
  std::vector<std::string> environment;  ///< NAME=VALUE, that ranks inherit
  std::string store;                     ///< made if it isn't there

  // Ranks on this node.
  std::uint32_t min_ranks = 1;
  std::uint32_t max_ranks = 1;
  std::uint32_t multiple_of = 1;  ///< in groups of so many
  std::string health_check;       ///< a shell command for each slot, before each start; empty: none
  double health_seconds = 60;     ///< how long a check may take, and how often slots that are left out are tried again

  // What it resumes from.
  VerifyLevel verify = VerifyLevel::quick;
  std::vector<std::string> from;  ///< replicas
  PeerOptions peer;
  std::string restore_to;      ///< a directory to restore to first; empty: ranks load for themselves
  double store_seconds = 600;  ///< how long the store may show no sign of life

  // What is a failure, and what is done about it.
  std::optional<double> heartbeat_seconds = 600;  ///< silence after a first heartbeat; nothing: it isn't looked at
  std::optional<double> start_seconds;            ///< until the first heartbeat
  int stop_signal = 9;                            ///< to the ranks that are left
  std::uint32_t max_retries_per_step = 3;         ///< failures from one checkpoint, before it's marked as poisoned
  std::optional<std::uint32_t> max_restarts;      ///< in all
  double backoff_seconds = 1;                     ///< before the second restart without a new checkpoint; then doubled

  // Saves that are asked for.
  std::optional<double> interval_seconds;  ///< how often
  bool interval_auto = false;              ///< found from what saves cost, and how often it fails
  double grace_seconds = 120;              ///< until the last save must be durable, when asked to end
  std::vector<int> preempt_signals;        ///< that ask for it, besides SIGTERM and SIGINT

  // Output of the ranks.
  std::string log_directory;  ///< empty: as this process's
  std::uint64_t log_bytes = std::uint64_t{64} << 20U;
  unsigned log_files = 3;

  // Other nodes. Either `meeting` or `cluster` says where they meet, if there are any.
  std::uint32_t nodes = 1;                 ///< the most that are used
  std::uint32_t min_nodes = 1;             ///< fewer only wait for more
  std::string node_name = "0";             ///< unlike any other node's; ranks are dealt in the order of the names
  std::string node_address = "127.0.0.1";  ///< where ranks on this node are reached; with `cluster`, empty: found
  std::string meeting;                     ///< HOST:PORT of node 0, of a fixed number of nodes: it listens there
  std::uint32_t node_rank = 0;             ///< with `meeting`: which of them this one is; node_name isn't used
  std::string cluster;                     ///< redis://HOST:PORT[/DB]?key=NAME, where nodes come and go
  std::string cluster_password;            ///< to log in there, if the address names no file for it
  double lease_seconds = 10;               ///< a node that is silent for so long is gone
  double join_seconds = 600;  ///< how long a fixed number of nodes is waited for at the start; later a minute at most
  std::uint16_t master_port = 0;  ///< that rank 0 listens at, if it's here; 0: a free one for each attempt

  std::string run_id;
  unsigned jobs = 0;
  int signal_fd = -1;    ///< signals that the caller has blocked, SIGCHLD among them, as signalfd(2) tells of them
  int lifeline_fd = -1;  ///< readable once the process that wants all this is dead; -1: there is none
};

struct RunReport {
  RunOutcome outcome = RunOutcome::finished;
  std::string detail;                 ///< why, one line; empty if it's finished
  std::optional<RunFailure> failure;  ///< that it was given up for
  std::uint64_t attempt = 0;
  std::uint32_t restarts = 0;
  std::optional<std::uint64_t> durable_step;
  int signal = 15;      ///< that a preempted or killed one was asked by
  bool is_safe = true;  ///< of a preempted one: the last step that was told of is durable
  double seconds = 0;
  RunState state;
};

/// Runs the command until it's finished, given up or asked to end. The calling process has one thread, is the parent of
/// every orphan below it (PR_SET_CHILD_SUBREAPER), and has no children that aren't its own. All of them are gone when
/// it comes back, workers of ckpt-save --detach excepted.
///
/// Errors: invalid_argument; not_found (the command; or there are checkpoints and none is good); exists (a higher
/// attempt has opened the store); busy (the store shows no sign of life; node 0 is gone or can't be reached, or Redis
/// can't; another node has this one's name); unsupported (a build without Redis); no_space, io and others of the store.
[[nodiscard]] CKPT_API RunReport supervise(const RunOptions& options, RunObserver& observer);

/// What a guarded process works with: RunOptions::signal_fd and lifeline_fd.
struct Guarded {
  int signal_fd = -1;
  int lifeline_fd = -1;
};
/// How a guarded process ended: with a status, or of a signal.
struct GuardedEnd {
  int status = 0;
  int signal = 0;
};
/// Runs `work` in a child, to which the `signals` that reach this process are passed on. When this process is killed,
/// the child gets to know; when the child is, whatever it left running is killed. So neither leaves ranks behind.
/// `work` says how the child ends. The calling process has one thread; the signals stay blocked in it. Works as PID 1.
///
/// Errors: io.
[[nodiscard]] CKPT_API GuardedEnd guard(const std::vector<int>& signals,
                                        const std::function<GuardedEnd(const Guarded&)>& work);

}  // namespace ckpt
