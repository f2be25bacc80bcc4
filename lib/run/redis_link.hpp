// SPDX-License-Identifier: Apache-2.0
// The process that speaks with Redis for a node of a cluster, in a loop with one connection. Lines of JSON go between
// it and the supervisor.
//
// From the supervisor: {"state":NODE} several times a second, by which it's known to live; {"decide":JOB,"base":[G,R]},
// where that is what it was decided from; {"number":LEAST}; {"know":JOB}, to one that
// was started anew; {"leave":true}, with "forget":true if nobody needs to know
// why. To it: {"job":JOB}, what holds; {"nodes":[NODE...]} to the one that leads; {"leads_until":T},
// {"contact_since":T} in nanoseconds of the monotonic clock; {"number":N}; {"rejected":true}; {"taken":BOOL};
// {"lost":TEXT}; and {"error":TEXT,"code":N}, then it ends.
//
// Keys, behind the address' NAME: node:X expires, a node's life and state; nodes, their names; leader expires, the life
// of the one that leads; job, a hash of generation, revision and state; generation, the last number.
#pragma once

#include "doors/redis_connection.hpp"
#include "run/job_state.hpp"
#include "run/line_channel.hpp"

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace ckpt::run {

struct RedisLinkSettings {
  doors::RedisAddress address;
  std::string password;
  std::string name;
  std::string life;
  std::chrono::milliseconds lease{10000};
};

class RedisLink {
 public:
  RedisLink(const RedisLinkSettings& settings, os::Fd socket);

  /// Until it's told to leave, or the supervisor is gone, or it can't go on. Throws nothing.
  void run();

 private:
  using Clock = std::chrono::steady_clock;
  struct Decision {
    std::uint64_t base_generation = 0;
    std::uint64_t base_revision = 0;
    JobState job;
  };

  void serve();
  void take(const nlohmann::json& line);
  void round();
  void turn(Clock::time_point now);
  void take_answer(const doors::RedisValue& answer, Clock::time_point asked, bool renews_lead);
  void take_job(const doors::RedisValue& answer);
  void decide();
  void number();
  void leave();
  [[nodiscard]] doors::RedisValue call(std::string_view script, const std::vector<std::string>& arguments);
  [[nodiscard]] bool is_supervised(Clock::time_point now) const;
  [[nodiscard]] std::string state_text() const;

  RedisLinkSettings settings_;
  LineChannel channel_;
  doors::RedisConnection connection_;

  nlohmann::json state_;  ///< of this node; null: not known yet
  bool is_changed_ = false;
  Clock::time_point heard_;
  Clock::time_point next_round_;
  Clock::time_point next_renewal_;
  std::optional<Clock::time_point> contact_since_;
  bool is_taken_ = false;

  std::optional<JobState> job_;  ///< as Redis had it last
  bool has_told_job_ = false;
  std::optional<Decision> decision_;
  std::optional<std::uint64_t> least_number_;
  std::string nodes_text_;
  bool leaves_ = false;
  bool forgets_ = false;
};

}  // namespace ckpt::run
