// SPDX-License-Identifier: Apache-2.0
// What the nodes of a job tell one another: each node how it is, the one that leads what holds for all. Both are whole
// states and no messages, so that a lost or repeated one does no harm, and a new leader goes on from what it finds.
//
//              a node                                   the job
//   preparing -> ready -> running -> done     gather -> run -> stop -> gather ... -> over
//                  ^         |        |
//                  +------ failed <---+
#pragma once

#include "run/control_page.hpp"
#include "run/retries.hpp"

#include <ckpt/run.hpp>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace ckpt::run {

enum class NodePhase {
  preparing,  ///< checks its slots, drains its spool: no rank runs
  ready,      ///< for the next generation
  running,
  done,    ///< all its ranks have ended well
  failed,  ///< one of them has failed; the others may run still
};

struct NodeState {
  std::string name;
  std::string life;         ///< another for each process: one that was started anew knows nothing of what it did before
  std::string address;      ///< where rank 0 can be reached, if it's on this node
  std::uint16_t port = 0;   ///< a free one, for the next generation
  std::uint32_t ranks = 0;  ///< that it can run
  NodePhase phase = NodePhase::preparing;
  std::uint64_t generation = 0;  ///< the last that it has begun, or given up before it began
  std::optional<RunFailure> failure;
  std::optional<std::uint64_t> last_step;  ///< that a rank of this generation has finished
  bool has_joined = false;                 ///< a rank looks for requests
  Request wants = Request::none;           ///< what it was asked for from outside
  std::string trouble;                     ///< why it can't go on with the job; it's about to leave

  // The answer to JobState::Proposal.
  std::uint64_t proposal = 0;   ///< its number
  bool is_in_time = false;      ///< no rank here has gone past it
  std::uint64_t next_step = 0;  ///< that no rank here has finished
  bool is_answered = true;      ///< all ranks here know of it
};

enum class JobPhase { gather, run, stop, over };

/// What one node has to do in a generation.
struct Share {
  std::string node;
  std::string life;
  std::uint32_t first_rank = 0;
  std::uint32_t ranks = 0;
};

/// A request on its way to all ranks.
struct Proposal {
  std::uint64_t number = 0;  ///< 0: there's none
  Request request = Request::none;
  std::uint64_t step = 0;
  bool is_agreed = false;
  bool by_signal = false;  ///< to end: ranks that look for no requests get SIGTERM
};

struct JobState {
  std::uint64_t revision = 0;    ///< counts what was decided
  std::uint64_t generation = 0;  ///< the attempt that runs, ran last, or is being stopped
  JobPhase phase = JobPhase::gather;
  std::vector<Share> shares;
  std::uint32_t world_size = 0;
  std::optional<std::uint64_t> resume_step;
  std::string master_address;
  std::uint16_t master_port = 0;
  RetryCounts retries;
  std::optional<double> interval_seconds;
  Proposal proposal;

  // Once it's asked to end, or stopped.
  std::optional<RunOutcome> outcome;     ///< no attempt comes after this one, and so the job ends
  std::string why;                       ///< it's stopped, or over
  std::optional<RunFailure> failure;     ///< that it's stopped for
  bool is_counted = false;               ///< it is in `retries`
  std::optional<std::uint64_t> reached;  ///< the last step that any rank told of
  bool is_safe = true;                   ///< once it's over: that step is durable

  /// Nothing if it has none, or had it in an earlier life.
  [[nodiscard]] const Share* share_of(const NodeState& node) const;
  /// True if it was decided before `other`.
  [[nodiscard]] bool is_before(const JobState& other) const;
};

/// As JSON. Reading throws Errc::malformed for what isn't one.
[[nodiscard]] nlohmann::json to_json(const NodeState& state);
[[nodiscard]] nlohmann::json to_json(const JobState& state);
[[nodiscard]] NodeState node_state_from(const nlohmann::json& value);
[[nodiscard]] JobState job_state_from(const nlohmann::json& value);

}  // namespace ckpt::run
