// SPDX-License-Identifier: Apache-2.0
// The ranks of one attempt on this node: started, listened to, looked at for death and silence.
#pragma once

#include "os/fd.hpp"
#include "run/control_page.hpp"
#include "run/notify_socket.hpp"
#include "run/rank_environment.hpp"
#include "run/rank_log.hpp"
#include "run/ticks.hpp"

#include <ckpt/run.hpp>

#include <poll.h>
#include <sys/types.h>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ckpt::run {

struct GroupSettings {
  std::vector<std::string> command;
  JobEnvironment job;  ///< without the control page
  std::string log_directory;
  LogLimits log_limits;
  std::optional<Seconds> heartbeat;
  std::optional<Seconds> start_limit;
};

/// Its processes are reaped by the caller, who tells of it. What still runs is not ended by the destructor.
class RankGroup {
 public:
  /// Starts them. Throws if the command can't be run: then some may run already.
  RankGroup(GroupSettings settings, Round round);

  [[nodiscard]] const Round& round() const { return round_; }
  [[nodiscard]] ControlPage& control() { return control_; }

  void add_to(std::vector<pollfd>& watched) const;
  /// Takes in what ranks have said and printed. A first trouble with a log is a text to warn with.
  [[nodiscard]] std::optional<std::string> listen();
  /// False if that isn't one of its ranks.
  bool set_ended(pid_t pid, int status);

  /// The failure that came first, if one did: a rank that ended badly, or one that is silent.
  [[nodiscard]] std::optional<RunFailure> failure(Clock::time_point now);
  /// When silence may become a failure.
  [[nodiscard]] std::optional<Clock::time_point> next_deadline() const;
  [[nodiscard]] bool has_ended() const;
  /// All ranks that have joined the control page have ended, and one has joined.
  [[nodiscard]] bool have_joined_ended() const;

  /// To all processes of each rank that hasn't ended, but those of the local rank `except`.
  void signal(int signal, std::optional<std::uint32_t> except = std::nullopt) const;
  void signal_one(std::uint32_t local_rank, int signal) const;
  [[nodiscard]] bool is_running(std::uint32_t local_rank) const { return ranks_[local_rank].pid > 0; }

  /// The last step that any rank has told of.
  [[nodiscard]] std::optional<std::uint64_t> last_step() const;
  [[nodiscard]] std::vector<RunRank> states(Clock::time_point now) const;
  [[nodiscard]] std::vector<std::string> last_lines(std::uint32_t local_rank) const;

 private:
  struct Rank {
    pid_t pid = -1;  ///< -1: it has ended
    pid_t was = -1;  ///< its pid, also afterwards
    NotifySocket socket;
    os::Fd output;  ///< of a pipe, if there is a log
    std::unique_ptr<RankLog> log;
    Clock::time_point last_sign;  ///< the start, or the last heartbeat
    std::optional<Clock::time_point> deadline;
    bool has_beaten = false;
    bool gives_up = false;
    std::optional<int> status;  ///< as wait(2) has it
    std::string text;
    std::optional<std::uint64_t> step;
    std::optional<double> loss;
  };

  void start(std::uint32_t local_rank);
  void take(Rank& rank, const Notice& notice);
  [[nodiscard]] bool read_output(Rank& rank);
  [[nodiscard]] std::optional<std::uint32_t> first_dead() const;
  [[nodiscard]] std::optional<std::uint32_t> most_silent(Clock::time_point now) const;
  [[nodiscard]] RunFailure describe(std::uint32_t local_rank, RunCause cause) const;
  [[nodiscard]] std::optional<std::uint64_t> step_of(std::uint32_t local_rank) const;

  GroupSettings settings_;
  Round round_;
  ControlPage control_;
  unsigned long long memory_kills_;
  std::vector<Rank> ranks_;
  std::vector<std::uint32_t> dead_;  ///< in the order of their ends
};

}  // namespace ckpt::run
