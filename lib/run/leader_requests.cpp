// SPDX-License-Identifier: Apache-2.0
// What a leader asks of all ranks of a generation at the same step, and how often it lets them save.
#include "run/leader.hpp"

#include <ckpt/bench.hpp>

#include <algorithm>

namespace ckpt::run {
namespace {

/// Where no failure has been seen yet, one a day is taken for granted: intervals come out long rather than endless.
constexpr double prior_seconds = 24 * 3600;
/// Until a first save has shown what it costs.
constexpr double first_interval = 300;
/// Nodes whose ranks look for no requests may still wait for those that did, and ended.
constexpr std::chrono::seconds straggling_nodes_patience(5);
/// Ranks that don't look for requests yet may do so in a moment, as others do.
constexpr std::chrono::seconds join_patience(10);

}  // namespace

bool Leader::propose(Request request, Time now) {
  const auto nodes = sharing();
  std::uint64_t step = 0;
  for (const NodeState* state : nodes) step = std::max(step, state->next_step);
  // Scripts that know nothing of requests know SIGTERM.
  const bool by_signal =
      std::none_of(nodes.begin(), nodes.end(), [](const NodeState* state) { return state->has_joined; });
  job_.proposal = {.number = job_.proposal.number + 1,
                   .request = request,
                   .step = step,
                   .is_agreed = false,
                   .by_signal = by_signal && request == Request::stop};
  decide();
  observer_.event(
      {.kind = RunEventKind::asked,
       .text = request == Request::save ? "the ranks are asked to save" : "the ranks are asked to save and to end",
       .attempt = job_.generation});
  if (request == Request::save) next_save_ = now + ticks(Seconds(job_.interval_seconds.value_or(first_interval)));
  return true;
}

bool Leader::settle_proposal() {
  Proposal& proposal = job_.proposal;
  if (proposal.request == Request::none) return false;
  auto nodes = sharing();
  std::erase_if(nodes, [](const NodeState* state) { return state->phase != NodePhase::running; });
  const auto all = [&](const auto& holds) { return std::all_of(nodes.begin(), nodes.end(), holds); };
  if (!all([&](const NodeState* state) { return state->proposal == proposal.number; })) return false;
  if (proposal.is_agreed) {
    if (proposal.request == Request::stop || !all([](const NodeState* state) { return state->is_answered; }))
      return false;
    proposal.request = Request::none;
  } else if (all([](const NodeState* state) { return state->is_in_time; })) {
    proposal.is_agreed = true;
  } else {
    ++proposal.number;
    std::uint64_t next = proposal.step;
    for (const NodeState* state : nodes) next = std::max(next, state->next_step);
    // Nodes go on while this is told to them: they get twice the room that they have just needed.
    const std::uint64_t room = nodes.size() > 1 ? 2 * (next - proposal.step) + 1 : 0;
    proposal.step = next + room;
  }
  decide();
  return true;
}

/// Once all that look for requests have ended, those that don't are told another way.
bool Leader::tell_stragglers(Time now) {
  if (job_.proposal.request != Request::stop || job_.proposal.by_signal) return false;
  bool is_one_left = false;
  for (const NodeState* state : sharing()) {
    if (state->has_joined && state->phase != NodePhase::done) return false;
    is_one_left |= !state->has_joined && state->phase == NodePhase::running;
  }
  if (!is_one_left) return false;
  if (!joined_end_) joined_end_ = now;
  if (now - *joined_end_ < straggling_nodes_patience) return false;
  job_.proposal.by_signal = true;
  decide();
  return true;
}

bool Leader::ask_as_due(Time now) {
  if (is_wanted(Request::stop) && !ends()) {
    job_.outcome = RunOutcome::preempted;
    decide();
    return true;
  }
  // It may take the place of a save that some do not answer.
  if (job_.proposal.request == Request::stop || !can_ask(now)) return false;
  if (ends()) return propose(Request::stop, now);
  if (now >= next_growth_ && could_grow()) return propose(Request::stop, now);
  if (job_.proposal.request != Request::none) return false;
  if (!options_.interval_seconds && !options_.interval_auto) return false;
  if (!next_save_) next_save_ = now + ticks(Seconds(job_.interval_seconds.value_or(first_interval)));
  if (now < *next_save_) return false;
  set_interval();
  return propose(Request::save, now);
}

/// Only what all nodes have begun is asked of them all.
bool Leader::can_ask(Time now) {
  std::size_t joined = 0;
  const auto nodes = sharing();
  for (const NodeState* state : nodes) {
    if (state->generation != job_.generation) return false;
    joined += state->has_joined ? 1 : 0;
  }
  if (joined == 0 || joined == nodes.size()) return true;
  if (!some_joined_) some_joined_ = now;
  return now - *some_joined_ >= join_patience;
}

void Leader::set_interval() {
  job_.interval_seconds = options_.interval_seconds;
  if (!options_.interval_auto) return;
  if (!save_seconds_) {
    job_.interval_seconds = first_interval;
    return;
  }
  // As if the training stood still while a save is written: what a save in the background costs is less, and then
  // saving more often than that gains little.
  const double elapsed = Seconds(std::chrono::steady_clock::now() - began_).count();
  const double between_failures = (elapsed + prior_seconds) / (failures_ + 1);
  const double cost = std::max(*save_seconds_, 1e-3);
  job_.interval_seconds = std::max(best_interval(cost, 0, between_failures).daly_seconds, cost);
}

}  // namespace ckpt::run
