// SPDX-License-Identifier: Apache-2.0
// What is decided for the whole job, from the states of its nodes and the store: when a generation starts and from
// what, when it's stopped, what is asked of all ranks, and when it's over. One node at a time does it.
#pragma once

#include "run/board.hpp"
#include "run/deal.hpp"
#include "run/guarded_task.hpp"
#include "run/recovery.hpp"
#include "run/retries.hpp"
#include "run/ticks.hpp"

#include <ckpt/run.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace ckpt::run {

class Leader {
 public:
  Leader(const RunOptions& options, Board& board, RunObserver& observer);

  void add_to(std::vector<pollfd>& watched) const { task_.add_to(watched); }
  [[nodiscard]] bool set_ended(pid_t pid) const { return task_.set_ended(pid); }
  [[nodiscard]] std::vector<pid_t> helpers() const { return task_.pids(); }

  /// What has been seen of the store meanwhile.
  void take(const StoreNews& news, std::chrono::steady_clock::time_point now);
  /// Decides what is due. True if it has decided something. Throws what the whole job ends with.
  bool turn(std::chrono::steady_clock::time_point now);
  /// Someone else decides: what was under way here is given up.
  void rest();
  /// Ends the job for all nodes, for an error that this one can't go on after.
  void give_up(const std::string& why);

  /// Failures and restarts that this node has decided about.
  struct Account {
    std::map<RunCause, std::uint64_t> restarts;
    double lost_seconds = 0;
    std::uint64_t steps_redone = 0;
  };
  [[nodiscard]] const Account& account() const { return account_; }
  /// The newest checkpoint that can be gone on from, as far as that has been seen.
  [[nodiscard]] std::optional<std::uint64_t> durable() const { return durable_; }

 private:
  using Time = std::chrono::steady_clock::time_point;
  enum class Stage { waiting, looking, pausing, numbering, recovering };

  bool gather(Time now);
  bool end_between(Time now);
  bool end_before_start();
  bool run(Time now);
  bool stop(Time now);

  [[nodiscard]] bool are_ready() const;
  [[nodiscard]] bool end_waiting(Time now);
  void begin_look();
  void judge(const StoreNews& news, Time now);
  void begin_recovery();
  void start(const Recovery& recovery, Time now);
  void end(RunOutcome outcome, std::string why, bool is_safe = true);
  void decide();

  void stop_for(const RunFailure& failure, Time now);
  void stop_to(std::string why);
  [[nodiscard]] std::optional<RunFailure> find_failure() const;
  [[nodiscard]] bool are_all(NodePhase phase) const;
  [[nodiscard]] std::vector<NodeState> nodes_to_deal_to() const;
  [[nodiscard]] bool have_all_begun() const;
  [[nodiscard]] bool could_grow() const;
  [[nodiscard]] const NodeState* node(const Share& share) const;
  [[nodiscard]] std::vector<const NodeState*> sharing() const;
  [[nodiscard]] std::optional<std::uint64_t> last_step() const;
  [[nodiscard]] bool is_wanted(Request request) const;

  [[nodiscard]] bool ends() const { return job_.outcome == RunOutcome::preempted; }
  bool propose(Request request, Time now);
  bool tell_stragglers(Time now);
  [[nodiscard]] bool can_ask(Time now);
  bool settle_proposal();
  bool ask_as_due(Time now);
  void set_interval();

  const RunOptions& options_;
  Board& board_;
  RunObserver& observer_;
  DealRules rules_;
  GuardedTask task_;
  Account account_;

  // What another one needs to go on from here is all in it.
  JobState job_;  ///< as decided last
  Time began_;

  // Of the way to the next generation.
  Stage stage_ = Stage::waiting;
  Time stage_end_;                     ///< of a pause
  std::optional<Time> enough_since_;   ///< nodes that could start
  std::optional<Time> waiting_since_;  ///< for nodes that have to come
  std::optional<Time> failed_at_;
  std::optional<std::uint64_t> poisoned_;
  std::uint64_t least_generation_ = 1;
  std::uint64_t opened_ = 0;  ///< the last attempt that was opened here, run or not

  // Of one that runs.
  std::optional<Time> grace_end_;
  std::optional<Time> some_joined_;  ///< but not on all nodes
  std::optional<Time> joined_end_;   ///< of all ranks that look for requests

  std::optional<std::uint64_t> durable_;
  std::optional<double> save_seconds_;
  Time durable_at_;
  Time started_at_;  ///< the last attempt
  std::optional<Time> next_save_;
  Time next_growth_;
  std::uint32_t failures_ = 0;
};

}  // namespace ckpt::run
