// SPDX-License-Identifier: Apache-2.0
// Where the nodes of a job tell their states: in this process for one node, over TCP to node 0, or in Redis. Nothing
// here waits.
#pragma once

#include "run/job_state.hpp"

#include <poll.h>
#include <sys/types.h>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace ckpt::run {

/// The last that a node says has so long to get there.
constexpr std::chrono::seconds farewell(3);

class Board {
 public:
  virtual ~Board() = default;

  virtual void add_to(std::vector<pollfd>& watched) const = 0;
  /// Takes in and gives out what there is. Throws what this node can't go on after.
  virtual void turn(std::chrono::steady_clock::time_point now) = 0;
  /// A child of this process has ended. False if it isn't the board's.
  virtual bool set_ended(pid_t pid) = 0;
  /// Processes that mustn't be killed with the ranks.
  [[nodiscard]] virtual std::vector<pid_t> helpers() const = 0;

  /// What this node tells of itself.
  virtual void publish(const NodeState& state) = 0;
  /// Only says again that this node is there. Throws nothing.
  virtual void keep_in_touch(std::chrono::steady_clock::time_point now) = 0;
  /// What holds for the job; nothing as long as that isn't known.
  [[nodiscard]] virtual const std::optional<JobState>& job() const = 0;

  /// True if this node decides. It may end at any time: then decide() is without effect.
  [[nodiscard]] virtual bool leads() const = 0;
  /// All nodes there are, this one among them; only for the one that leads. False: not known now, nothing is decided.
  [[nodiscard]] virtual bool knows_nodes() const = 0;
  [[nodiscard]] virtual const std::vector<NodeState>& nodes() const = 0;
  /// Holds, and is what job() says, as soon as that is certain.
  virtual void decide(const JobState& state) = 0;
  /// As decided last, if that isn't certain yet; else job().
  [[nodiscard]] virtual const std::optional<JobState>& decided() const { return job(); }

  /// Whether generations are numbered here; else the store alone does.
  [[nodiscard]] virtual bool keeps_count() const { return false; }
  /// A number from `least` on that no generation has had, once it's there: asked for until then.
  [[nodiscard]] virtual std::optional<std::uint64_t> next_generation(std::uint64_t /*least*/) { return std::nullopt; }

  /// Something that the user should know, once.
  [[nodiscard]] virtual std::optional<std::string> take_warning() { return std::nullopt; }

  /// This node leaves: all that was published or decided is given out first, for a short time.
  virtual void leave() = 0;
};

/// One node.
class LocalBoard final : public Board {
 public:
  void add_to(std::vector<pollfd>&) const override {}
  void turn(std::chrono::steady_clock::time_point) override {}
  bool set_ended(pid_t) override { return false; }
  [[nodiscard]] std::vector<pid_t> helpers() const override { return {}; }
  void publish(const NodeState& state) override { nodes_ = {state}; }
  void keep_in_touch(std::chrono::steady_clock::time_point) override {}
  [[nodiscard]] const std::optional<JobState>& job() const override { return job_; }
  [[nodiscard]] bool leads() const override { return true; }
  [[nodiscard]] bool knows_nodes() const override { return !nodes_.empty(); }
  [[nodiscard]] const std::vector<NodeState>& nodes() const override { return nodes_; }
  void decide(const JobState& state) override { job_ = state; }
  void leave() override {}

 private:
  std::vector<NodeState> nodes_;
  std::optional<JobState> job_ = JobState{};
};

}  // namespace ckpt::run
