// SPDX-License-Identifier: Apache-2.0
#include "run/job_state.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace ckpt::run {
namespace {

using nlohmann::json;

template <class T>
json optional_json(const std::optional<T>& value) {
  return value ? json(*value) : json();
}

template <class T>
std::optional<T> optional_from(const json& value) {
  if (value.is_null()) return std::nullopt;
  return value.get<T>();
}

/// Enumerations travel as numbers from 0 to `last`.
template <class E>
E enum_from(const json& value, E last) {
  const auto number = value.get<std::uint64_t>();
  if (number > static_cast<std::uint64_t>(last)) throw Error(Errc::malformed, "a node's state holds an unknown word");
  return static_cast<E>(number);
}

template <class E>
std::uint64_t number_of(E value) {
  return static_cast<std::uint64_t>(value);
}

json to_json(const RunFailure& failure) {
  return {{"cause", number_of(failure.cause)},
          {"attempt", failure.attempt},
          {"rank", failure.rank},
          {"local_rank", failure.local_rank},
          {"pid", failure.pid},
          {"exit_status", failure.exit_status},
          {"signal", failure.signal},
          {"step", optional_json(failure.step)},
          {"last_lines", failure.last_lines},
          {"detail", failure.detail}};
}

RunFailure failure_from(const json& value) {
  return {.cause = enum_from(value.at("cause"), RunCause::resize),
          .attempt = value.at("attempt").get<std::uint64_t>(),
          .rank = value.at("rank").get<std::uint32_t>(),
          .local_rank = value.at("local_rank").get<std::uint32_t>(),
          .pid = value.at("pid").get<std::int64_t>(),
          .exit_status = value.at("exit_status").get<int>(),
          .signal = value.at("signal").get<int>(),
          .step = optional_from<std::uint64_t>(value.at("step")),
          .last_lines = value.at("last_lines").get<std::vector<std::string>>(),
          .detail = value.at("detail").get<std::string>()};
}

json failure_json(const std::optional<RunFailure>& failure) { return failure ? to_json(*failure) : json(); }

std::optional<RunFailure> optional_failure_from(const json& value) {
  if (value.is_null()) return std::nullopt;
  return failure_from(value);
}

/// What another node says isn't trusted to be what it should be.
template <class Read>
auto checked(const char* what, Read&& read) {
  try {
    return read();
  } catch (const json::exception& error) {
    throw Error(Errc::malformed, std::string(what) + " of another node is malformed: " + error.what());
  }
}

}  // namespace

const Share* JobState::share_of(const std::string& node) const {
  const auto found = std::find_if(shares.begin(), shares.end(), [&](const Share& share) { return share.node == node; });
  return found == shares.end() ? nullptr : &*found;
}

json to_json(const NodeState& state) {
  return {{"name", state.name},
          {"address", state.address},
          {"port", state.port},
          {"ranks", state.ranks},
          {"phase", number_of(state.phase)},
          {"generation", state.generation},
          {"failure", failure_json(state.failure)},
          {"last_step", optional_json(state.last_step)},
          {"has_joined", state.has_joined},
          {"wants", number_of(state.wants)},
          {"trouble", state.trouble},
          {"proposal", state.proposal},
          {"is_in_time", state.is_in_time},
          {"next_step", state.next_step},
          {"is_answered", state.is_answered}};
}

NodeState node_state_from(const json& value) {
  return checked("the state", [&]() -> NodeState {
    return {.name = value.at("name").get<std::string>(),
            .address = value.at("address").get<std::string>(),
            .port = value.at("port").get<std::uint16_t>(),
            .ranks = value.at("ranks").get<std::uint32_t>(),
            .phase = enum_from(value.at("phase"), NodePhase::failed),
            .generation = value.at("generation").get<std::uint64_t>(),
            .failure = optional_failure_from(value.at("failure")),
            .last_step = optional_from<std::uint64_t>(value.at("last_step")),
            .has_joined = value.at("has_joined").get<bool>(),
            .wants = enum_from(value.at("wants"), Request::stop),
            .trouble = value.at("trouble").get<std::string>(),
            .proposal = value.at("proposal").get<std::uint64_t>(),
            .is_in_time = value.at("is_in_time").get<bool>(),
            .next_step = value.at("next_step").get<std::uint64_t>(),
            .is_answered = value.at("is_answered").get<bool>()};
  });
}

json to_json(const JobState& state) {
  json shares = json::array();
  for (const Share& share : state.shares)
    shares.push_back({{"node", share.node}, {"first_rank", share.first_rank}, {"ranks", share.ranks}});
  return {{"generation", state.generation},
          {"phase", number_of(state.phase)},
          {"shares", std::move(shares)},
          {"world_size", state.world_size},
          {"resume_step", optional_json(state.resume_step)},
          {"master_address", state.master_address},
          {"master_port", state.master_port},
          {"restarts", state.restarts},
          {"interval_seconds", optional_json(state.interval_seconds)},
          {"proposal",
           {{"number", state.proposal.number},
            {"request", number_of(state.proposal.request)},
            {"step", state.proposal.step},
            {"is_agreed", state.proposal.is_agreed}}},
          {"why", state.why},
          {"is_last", state.is_last},
          {"outcome", number_of(state.outcome)},
          {"failure", failure_json(state.failure)},
          {"is_safe", state.is_safe}};
}

JobState job_state_from(const json& value) {
  return checked("the job's state", [&] {
    JobState state{.generation = value.at("generation").get<std::uint64_t>(),
                   .phase = enum_from(value.at("phase"), JobPhase::over),
                   .world_size = value.at("world_size").get<std::uint32_t>(),
                   .resume_step = optional_from<std::uint64_t>(value.at("resume_step")),
                   .master_address = value.at("master_address").get<std::string>(),
                   .master_port = value.at("master_port").get<std::uint16_t>(),
                   .restarts = value.at("restarts").get<std::uint32_t>(),
                   .interval_seconds = optional_from<double>(value.at("interval_seconds")),
                   .why = value.at("why").get<std::string>(),
                   .is_last = value.at("is_last").get<bool>(),
                   .outcome = enum_from(value.at("outcome"), RunOutcome::killed),
                   .failure = optional_failure_from(value.at("failure")),
                   .is_safe = value.at("is_safe").get<bool>()};
    for (const json& share : value.at("shares")) {
      state.shares.push_back({.node = share.at("node").get<std::string>(),
                              .first_rank = share.at("first_rank").get<std::uint32_t>(),
                              .ranks = share.at("ranks").get<std::uint32_t>()});
    }
    const json& proposal = value.at("proposal");
    state.proposal = {.number = proposal.at("number").get<std::uint64_t>(),
                      .request = enum_from(proposal.at("request"), Request::stop),
                      .step = proposal.at("step").get<std::uint64_t>(),
                      .is_agreed = proposal.at("is_agreed").get<bool>()};
    return state;
  });
}

}  // namespace ckpt::run
