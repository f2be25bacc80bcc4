// SPDX-License-Identifier: Apache-2.0
#include "run/rank_environment.hpp"

#include "run/slots.hpp"

#include <ckpt/address.hpp>

#include <fmt/format.h>
#include <map>
#include <string_view>

namespace ckpt::run {
namespace {

using Variables = std::map<std::string, std::string>;

Variables parse(const std::vector<std::string>& environment) {
  Variables variables;
  for (const std::string& entry : environment) {
    const auto equals = entry.find('=');
    if (equals != std::string::npos && equals > 0) variables[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  return variables;
}

/// What torchrun sets, so that scripts written for it run unchanged.
void set_torchrun(Variables& variables, const JobEnvironment& job, const Round& round, std::uint32_t local_rank) {
  const auto set = [&](const char* name, auto value) { variables[name] = fmt::format("{}", value); };
  const std::uint32_t rank = round.first_rank + local_rank;
  set("RANK", rank);
  set("LOCAL_RANK", local_rank);
  set("WORLD_SIZE", round.world_size);
  set("LOCAL_WORLD_SIZE", round.local_size());
  set("GROUP_RANK", round.node);
  set("GROUP_WORLD_SIZE", round.nodes);
  set("ROLE_NAME", "default");
  set("ROLE_RANK", rank);
  set("ROLE_WORLD_SIZE", round.world_size);
  set("MASTER_ADDR", round.master_address);
  set("MASTER_PORT", round.master_port);
  set("TORCHELASTIC_RESTART_COUNT", job.restarts);
  set("TORCHELASTIC_MAX_RESTARTS", job.most_restarts.value_or(UINT32_MAX));
  set("TORCHELASTIC_RUN_ID", job.run_id);
  set("TORCHELASTIC_USE_AGENT_STORE", "False");
  // One thread each, rather than as many as there are cores for each of several.
  if (round.local_size() > 1) variables.try_emplace("OMP_NUM_THREADS", "1");
  variables.try_emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
}

void set_ckpt(Variables& variables, const JobEnvironment& job, const Round& round, const std::string& notify_socket) {
  variables["CKPT_STORE"] = job.store;
  variables["CKPT_ATTEMPT"] = std::to_string(round.attempt);
  variables["CKPT_RESUME"] = round.resume_step ? address_of(job.store, *round.resume_step) : "";
  variables["CKPT_CONTROL"] = job.control;
  variables["NOTIFY_SOCKET"] = notify_socket;
  for (const char* name : {"CKPT_RESUME_DIR", "CKPT_INTERVAL", "WATCHDOG_USEC", "WATCHDOG_PID"}) variables.erase(name);
  if (!job.resume_directory.empty() && round.resume_step) variables["CKPT_RESUME_DIR"] = job.resume_directory;
  if (job.interval_seconds) variables["CKPT_INTERVAL"] = fmt::format("{:.3f}", *job.interval_seconds);
  if (job.heartbeat_seconds) variables["WATCHDOG_USEC"] = fmt::format("{:.0f}", *job.heartbeat_seconds * 1e6);
  // A stack trace on SIGABRT, and no line lost that was printed before a kill.
  variables.try_emplace("PYTHONFAULTHANDLER", "1");
  variables.try_emplace("PYTHONUNBUFFERED", "1");
}

/// Where a slot is left out, its device is masked: ranks find theirs by LOCAL_RANK among the visible ones.
void mask_devices(Variables& variables, std::uint32_t all_slots, const std::vector<std::uint32_t>& slots) {
  if (slots.size() == all_slots) return;
  for (auto& [name, value] : variables) {
    // An empty one hides all devices, and that's meant.
    if (!std::string_view(name).ends_with("_VISIBLE_DEVICES") || value.empty()) continue;
    if (const auto masked = visible_devices(value, all_slots, slots)) value = *masked;
  }
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"})
    variables.try_emplace(name, *visible_devices(std::nullopt, all_slots, slots));
}

std::vector<std::string> listed(const Variables& variables) {
  std::vector<std::string> environment;
  for (const auto& [name, value] : variables) environment.push_back(name + "=" + value);
  return environment;
}

}  // namespace

std::vector<std::string> rank_environment(const JobEnvironment& job, const Round& round, std::uint32_t local_rank,
                                          const std::string& notify_socket) {
  Variables variables = parse(job.inherited);
  set_torchrun(variables, job, round, local_rank);
  set_ckpt(variables, job, round, notify_socket);
  mask_devices(variables, job.all_slots, round.slots);
  return listed(variables);
}

std::vector<std::string> slot_environment(const std::vector<std::string>& inherited, std::uint32_t all_slots,
                                          std::uint32_t slot) {
  Variables variables = parse(inherited);
  variables["LOCAL_RANK"] = std::to_string(slot);
  mask_devices(variables, all_slots, {slot});
  return listed(variables);
}

}  // namespace ckpt::run
