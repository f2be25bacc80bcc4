// SPDX-License-Identifier: Apache-2.0
// A fixed number of nodes: node 0 leads and listens, the others connect to it. Each sends its whole state at once where
// others wait for it, else a few times a second. A connection that ends, or is silent for too long, is a node that is
// gone.
//
// A line from a node: {"node":STATE,"nodes":N}; from node 0: {"job":STATE} or {"refused":TEXT,"code":N}.
#pragma once

#include "run/board.hpp"
#include "run/line_channel.hpp"
#include "run/saying.hpp"

#include <ckpt/run.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ckpt::run {

/// Node 0's.
class TcpHub final : public Board {
 public:
  /// Listens. Throws where it can't.
  explicit TcpHub(const RunOptions& options);

  void add_to(std::vector<pollfd>& watched) const override;
  void turn(std::chrono::steady_clock::time_point now) override;
  bool set_ended(pid_t) override { return false; }
  [[nodiscard]] std::vector<pid_t> helpers() const override { return {}; }
  void publish(const NodeState& state) override { own_ = state; }
  void keep_in_touch(std::chrono::steady_clock::time_point now) override;
  [[nodiscard]] const std::optional<JobState>& job() const override { return job_; }
  [[nodiscard]] bool leads() const override { return true; }
  [[nodiscard]] bool knows_nodes() const override { return own_.has_value(); }
  [[nodiscard]] const std::vector<NodeState>& nodes() const override { return nodes_; }
  void decide(const JobState& state) override;
  void leave() override;

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Peer {
    LineChannel channel;
    Time heard;
    std::optional<Time> told;
    std::optional<NodeState> state;  ///< nothing: it hasn't said who it is
  };

  void listen(const std::string& host, const std::string& port);
  void take_connections(Time now);
  void take(Peer& peer, const nlohmann::json& line);
  void refuse(Peer& peer, Errc code, const std::string& why);
  void tell(Peer& peer, Time now);

  std::uint32_t count_;
  std::chrono::steady_clock::duration silence_;
  os::Fd socket_;
  std::vector<Peer> peers_;
  std::optional<NodeState> own_;
  std::vector<NodeState> nodes_;
  std::vector<NodeState> left_;  ///< gone, and said why
  std::optional<JobState> job_ = JobState{};
};

/// Any other node's.
class TcpSpoke final : public Board {
 public:
  explicit TcpSpoke(const RunOptions& options);

  void add_to(std::vector<pollfd>& watched) const override;
  /// Throws Errc::busy if node 0 is gone, or can't be reached in time.
  void turn(std::chrono::steady_clock::time_point now) override;
  bool set_ended(pid_t) override { return false; }
  [[nodiscard]] std::vector<pid_t> helpers() const override { return {}; }
  void publish(const NodeState& state) override;
  void keep_in_touch(std::chrono::steady_clock::time_point now) override { tell(now); }
  [[nodiscard]] const std::optional<JobState>& job() const override { return job_; }
  [[nodiscard]] bool leads() const override { return false; }
  [[nodiscard]] bool knows_nodes() const override { return false; }
  [[nodiscard]] const std::vector<NodeState>& nodes() const override { return nodes_; }
  void decide(const JobState&) override {}
  void leave() override;

 private:
  using Time = std::chrono::steady_clock::time_point;

  void connect(Time now);
  void tell(Time now);
  void take(const nlohmann::json& line);
  [[nodiscard]] bool is_over() const { return job_ && job_->phase == JobPhase::over; }

  std::string meeting_;
  std::uint32_t count_;
  std::chrono::steady_clock::duration silence_;
  Time join_end_;
  Time next_try_;
  std::optional<LineChannel> channel_;
  Time heard_;
  Saying saying_;
  std::vector<NodeState> nodes_;
  std::optional<JobState> job_;
};

/// Of RunOptions::meeting. Throws invalid_argument, io, busy.
[[nodiscard]] std::unique_ptr<Board> open_tcp_board(const RunOptions& options);
/// Names of nodes that stand in the order of their ranks.
[[nodiscard]] std::string node_name_of(std::uint32_t node_rank);
/// HOST:PORT or [HOST]:PORT. Throws invalid_argument.
struct Meeting {
  std::string host;
  std::string port;
};
[[nodiscard]] Meeting parse_meeting(const std::string& text);

}  // namespace ckpt::run
