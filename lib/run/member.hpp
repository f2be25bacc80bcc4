// SPDX-License-Identifier: Apache-2.0
// One node's part in a job: its slots, its ranks, and what it tells of them.
#pragma once

#include "run/board.hpp"
#include "run/guarded_task.hpp"
#include "run/health_checks.hpp"
#include "run/rank_group.hpp"
#include "run/slots.hpp"

#include <ckpt/run.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace ckpt::run {

/// All processes below this one: who reaps them, and which aren't ranks.
class Household {
 public:
  virtual ~Household() = default;
  [[nodiscard]] virtual std::vector<pid_t> helpers() const = 0;
  virtual void set_ended(pid_t pid, int status) = 0;
};

class Member {
 public:
  Member(const RunOptions& options, Board& board, RunObserver& observer, Household& household);

  void add_to(std::vector<pollfd>& watched) const;
  bool set_ended(pid_t pid, int status);
  [[nodiscard]] std::vector<pid_t> own_helpers() const;
  [[nodiscard]] std::optional<Clock::time_point> next_deadline() const;

  /// Does what the job's state asks for, and publishes what has become of it. True if something has changed.
  bool turn(Clock::time_point now);
  /// A signal from outside for the ranks.
  void pass_on(int signal) const;
  /// Someone outside wants the job to save and end.
  void want_end() { state_.wants = Request::stop; }
  /// A checkpoint that is newer than any before.
  void forgive() { slots_.forgive(); }
  /// Tells the other nodes that this one can't go on, and why.
  void publish_trouble(const std::string& why);
  /// Ends all ranks, at once.
  void kill_ranks();

  [[nodiscard]] std::vector<RunRank> ranks(Clock::time_point now) const;

 private:
  void prepare(const JobState& job, Clock::time_point now);
  void begin(const JobState& job, const Share& share);
  void start(const JobState& job, const Share& share);
  void watch(const JobState& job, Clock::time_point now);
  void fail(RunFailure failure);
  void stop_ranks(std::optional<std::uint32_t> silent);
  void kill_the_rest();
  void end_silent(std::uint32_t local_rank);
  void wait_for_end(Clock::duration patience);
  void listen();
  void answer(const Proposal& proposal);
  void check_slots(Clock::time_point now);
  void take_health();
  void tell(RunEventKind kind, std::string text);

  const RunOptions& options_;
  Board& board_;
  RunObserver& observer_;
  Household& household_;
  Slots slots_;
  HealthChecks health_;
  GuardedTask task_;
  NodeState state_;
  std::optional<RankGroup> group_;

  bool is_checked_ = false;  ///< slots, since the last generation
  bool checks_all_ = false;  ///< the check that runs is of all slots in use
  bool is_drained_ = false;  ///< the spool
  bool is_restored_ = false;
  std::uint32_t checks_in_vain_ = 0;
  Clock::time_point next_check_;
  bool was_told_to_end_ = false;  ///< ranks that don't look for requests got a signal
  std::optional<Clock::time_point> joined_end_;
  bool has_warned_of_log_ = false;
};

}  // namespace ckpt::run
