// SPDX-License-Identifier: Apache-2.0
#include "run/job_state.hpp"

#include "run/optional_json.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

namespace ckpt::run {
namespace {

using nlohmann::json;

/// A number that fits.
template <class T>
T number_from(const json& value) {
  const auto number = value.get<std::uint64_t>();
  if (!value.is_number_unsigned() || number > std::numeric_limits<T>::max())
    throw Error(Errc::malformed, "a node's state holds a number that is out of range");
  return static_cast<T>(number);
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
          .attempt = number_from<std::uint64_t>(value.at("attempt")),
          .rank = number_from<std::uint32_t>(value.at("rank")),
          .local_rank = number_from<std::uint32_t>(value.at("local_rank")),
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

const Share* JobState::share_of(const NodeState& node) const {
  const auto found = std::find_if(shares.begin(), shares.end(), [&](const Share& share) {
    return share.node == node.name && share.life == node.life;
  });
  return found == shares.end() ? nullptr : &*found;
}

bool JobState::is_before(const JobState& other) const {
  return std::tie(generation, revision) < std::tie(other.generation, other.revision);
}

json to_json(const NodeState& state) {
  return {{"name", state.name},
          {"life", state.life},
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
            .life = value.at("life").get<std::string>(),
            .address = value.at("address").get<std::string>(),
            .port = number_from<std::uint16_t>(value.at("port")),
            .ranks = number_from<std::uint32_t>(value.at("ranks")),
            .phase = enum_from(value.at("phase"), NodePhase::failed),
            .generation = number_from<std::uint64_t>(value.at("generation")),
            .failure = optional_failure_from(value.at("failure")),
            .last_step = optional_from<std::uint64_t>(value.at("last_step")),
            .has_joined = value.at("has_joined").get<bool>(),
            .wants = enum_from(value.at("wants"), Request::stop),
            .trouble = value.at("trouble").get<std::string>(),
            .proposal = number_from<std::uint64_t>(value.at("proposal")),
            .is_in_time = value.at("is_in_time").get<bool>(),
            .next_step = number_from<std::uint64_t>(value.at("next_step")),
            .is_answered = value.at("is_answered").get<bool>()};
  });
}

json to_json(const JobState& state) {
  json shares = json::array();
  for (const Share& share : state.shares)
    shares.push_back(
        {{"node", share.node}, {"life", share.life}, {"first_rank", share.first_rank}, {"ranks", share.ranks}});
  return {{"revision", state.revision},
          {"generation", state.generation},
          {"phase", number_of(state.phase)},
          {"shares", std::move(shares)},
          {"world_size", state.world_size},
          {"resume_step", optional_json(state.resume_step)},
          {"master_address", state.master_address},
          {"master_port", state.master_port},
          {"retries",
           {{"furthest", optional_json(state.retries.furthest)},
            {"restarts", state.retries.restarts},
            {"in_vain", state.retries.in_vain},
            {"at_this_step", state.retries.at_this_step},
            {"poisoned_in_a_row", state.retries.poisoned_in_a_row}}},
          {"interval_seconds", optional_json(state.interval_seconds)},
          {"proposal",
           {{"number", state.proposal.number},
            {"request", number_of(state.proposal.request)},
            {"step", state.proposal.step},
            {"is_agreed", state.proposal.is_agreed},
            {"by_signal", state.proposal.by_signal}}},
          {"outcome", state.outcome ? json(number_of(*state.outcome)) : json()},
          {"why", state.why},
          {"failure", failure_json(state.failure)},
          {"is_counted", state.is_counted},
          {"reached", optional_json(state.reached)},
          {"is_safe", state.is_safe}};
}

JobState job_state_from(const json& value) {
  return checked("the job's state", [&] {
    JobState state{.revision = number_from<std::uint64_t>(value.at("revision")),
                   .generation = number_from<std::uint64_t>(value.at("generation")),
                   .phase = enum_from(value.at("phase"), JobPhase::over),
                   .world_size = number_from<std::uint32_t>(value.at("world_size")),
                   .resume_step = optional_from<std::uint64_t>(value.at("resume_step")),
                   .master_address = value.at("master_address").get<std::string>(),
                   .master_port = number_from<std::uint16_t>(value.at("master_port")),
                   .interval_seconds = optional_from<double>(value.at("interval_seconds")),
                   .why = value.at("why").get<std::string>(),
                   .failure = optional_failure_from(value.at("failure")),
                   .is_counted = value.at("is_counted").get<bool>(),
                   .reached = optional_from<std::uint64_t>(value.at("reached")),
                   .is_safe = value.at("is_safe").get<bool>()};
    if (const json& outcome = value.at("outcome"); !outcome.is_null())
      state.outcome = enum_from(outcome, RunOutcome::killed);
    const json& retries = value.at("retries");
    state.retries = {.furthest = optional_from<std::uint64_t>(retries.at("furthest")),
                     .restarts = number_from<std::uint32_t>(retries.at("restarts")),
                     .in_vain = number_from<std::uint32_t>(retries.at("in_vain")),
                     .at_this_step = number_from<std::uint32_t>(retries.at("at_this_step")),
                     .poisoned_in_a_row = number_from<std::uint32_t>(retries.at("poisoned_in_a_row"))};
    for (const json& share : value.at("shares")) {
      state.shares.push_back({.node = share.at("node").get<std::string>(),
                              .life = share.at("life").get<std::string>(),
                              .first_rank = number_from<std::uint32_t>(share.at("first_rank")),
                              .ranks = number_from<std::uint32_t>(share.at("ranks"))});
    }
    const json& proposal = value.at("proposal");
    state.proposal = {.number = number_from<std::uint64_t>(proposal.at("number")),
                      .request = enum_from(proposal.at("request"), Request::stop),
                      .step = number_from<std::uint64_t>(proposal.at("step")),
                      .is_agreed = proposal.at("is_agreed").get<bool>(),
                      .by_signal = proposal.at("by_signal").get<bool>()};
    return state;
  });
}

}  // namespace ckpt::run
