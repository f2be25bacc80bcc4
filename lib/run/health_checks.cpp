// SPDX-License-Identifier: Apache-2.0
#include "run/health_checks.hpp"

#include "run/processes.hpp"
#include "run/rank_environment.hpp"
#include "run/ticks.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <utility>

namespace ckpt::run {

HealthChecks::HealthChecks(std::string command, std::vector<std::string> environment, std::uint32_t all_slots,
                           std::chrono::duration<double> limit)
    : command_(std::move(command)), environment_(std::move(environment)), all_slots_(all_slots), limit_(limit) {}

void HealthChecks::start(const std::vector<std::uint32_t>& slots) {
  const auto now = std::chrono::steady_clock::now();
  deadline_ = now + ticks(limit_);
  for (const std::uint32_t slot : slots) {
    const pid_t pid = start_process(
        {.command = {"/bin/sh", "-c", command_}, .environment = slot_environment(environment_, all_slots_, slot)});
    running_[pid] = slot;
  }
}

bool HealthChecks::set_ended(pid_t pid, int status) {
  const auto found = running_.find(pid);
  if (found == running_.end()) return false;
  results_[found->second] = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  running_.erase(found);
  return true;
}

void HealthChecks::turn(std::chrono::steady_clock::time_point now) {
  if (running_.empty() || now < deadline_) return;
  for (const auto& [pid, slot] : running_) signal_group(pid, SIGKILL);
}

std::vector<pid_t> HealthChecks::pids() const {
  std::vector<pid_t> pids;
  for (const auto& [pid, slot] : running_) pids.push_back(pid);
  return pids;
}

std::map<std::uint32_t, bool> HealthChecks::take_results() { return std::exchange(results_, {}); }

}  // namespace ckpt::run
