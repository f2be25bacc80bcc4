// SPDX-License-Identifier: Apache-2.0
// One attempt on one node, and what its ranks are told of it: torchrun's variables, and ckpt's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ckpt::run {

/// What a node runs in one attempt.
struct Round {
  std::uint64_t attempt = 1;
  std::optional<std::uint64_t> resume_step;
  std::vector<std::uint32_t> slots;  ///< of this node: local rank i runs on slots[i]
  std::uint32_t first_rank = 0;      ///< of this node
  std::uint32_t world_size = 1;
  std::uint32_t node = 0;
  std::uint32_t nodes = 1;
  std::string master_address = "127.0.0.1";
  std::uint16_t master_port = 0;

  [[nodiscard]] std::uint32_t local_size() const { return static_cast<std::uint32_t>(slots.size()); }
};

/// What is the same for all ranks of a job.
struct JobEnvironment {
  std::vector<std::string> inherited;  ///< NAME=VALUE
  std::string store;
  std::string resume_directory;  ///< empty: CKPT_RESUME_DIR isn't set
  std::string run_id;
  std::uint32_t all_slots = 1;  ///< of this node
  std::uint32_t restarts = 0;
  std::optional<std::uint32_t> most_restarts;
  std::optional<double> interval_seconds;
  std::optional<double> heartbeat_seconds;
  std::string control;  ///< path of the control page
};

/// The environment of one rank. Variables that torchrun or this sets take the place of inherited ones; OMP_NUM_THREADS,
/// PYTHONFAULTHANDLER and PYTHONUNBUFFERED are only set where they aren't yet.
[[nodiscard]] std::vector<std::string> rank_environment(const JobEnvironment& job, const Round& round,
                                                        std::uint32_t local_rank, const std::string& notify_socket);

/// What a health check of one slot gets: LOCAL_RANK, and only the slot's devices visible.
[[nodiscard]] std::vector<std::string> slot_environment(const std::vector<std::string>& inherited,
                                                        std::uint32_t all_slots, std::uint32_t slot);

}  // namespace ckpt::run
