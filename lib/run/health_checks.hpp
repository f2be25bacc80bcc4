// SPDX-License-Identifier: Apache-2.0
// The user's command that says whether a slot is fit, run for several slots at the same time.
#pragma once

#include <sys/types.h>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ckpt::run {

class HealthChecks {
 public:
  /// `command` goes to a shell, with LOCAL_RANK the slot and only its devices visible. `limit`: how long one may take.
  HealthChecks(std::string command, std::vector<std::string> environment, std::uint32_t all_slots,
               std::chrono::duration<double> limit);

  [[nodiscard]] bool has_command() const { return !command_.empty(); }
  [[nodiscard]] bool is_running() const { return !running_.empty(); }
  void start(const std::vector<std::uint32_t>& slots);
  /// False if it isn't one of these.
  bool set_ended(pid_t pid, int status);
  /// Ends those that take too long.
  void turn(std::chrono::steady_clock::time_point now);
  [[nodiscard]] std::vector<pid_t> pids() const;
  /// What came out since the last call: whether each slot passed.
  [[nodiscard]] std::map<std::uint32_t, bool> take_results();

 private:
  std::string command_;
  std::vector<std::string> environment_;
  std::uint32_t all_slots_;
  std::chrono::duration<double> limit_;
  std::chrono::steady_clock::time_point deadline_;
  std::map<pid_t, std::uint32_t> running_;
  std::map<std::uint32_t, bool> results_;
};

}  // namespace ckpt::run
