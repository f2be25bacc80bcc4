// SPDX-License-Identifier: Apache-2.0
// What a leader makes of a generation that runs and of one that is stopped. How one begins stands in leader_gather.cpp,
// what is asked of its ranks in leader_requests.cpp.
#include "run/leader.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <utility>

namespace ckpt::run {
Leader::Leader(const RunOptions& options, Board& board, RunObserver& observer)
    : options_(options),
      board_(board),
      observer_(observer),
      rules_{.least_nodes = options.min_nodes,
             .most_nodes = options.nodes,
             .least_ranks = options.min_ranks,
             .multiple_of = options.multiple_of},
      task_(options.store, Seconds(options.store_seconds)),
      began_(std::chrono::steady_clock::now()),
      durable_at_(began_),
      started_at_(began_),
      next_growth_(began_) {}

void Leader::take(const StoreNews& news, Time now) {
  if (news.newest == durable_) return;
  const bool is_new = news.newest > durable_ && job_.phase == JobPhase::run;
  durable_ = news.newest;
  durable_at_ = now;
  save_seconds_ = news.save_seconds;
  if (is_new)
    observer_.event({.kind = RunEventKind::durable,
                     .text = fmt::format("step {} is durable", *news.newest),
                     .attempt = job_.generation,
                     .step = news.newest});
}

bool Leader::turn(Time now) {
  if (!board_.knows_nodes() || !board_.decided()) return false;
  job_ = *board_.decided();
  switch (job_.phase) {
    case JobPhase::gather: return gather(now);
    case JobPhase::run: return run(now);
    case JobPhase::stop: return stop(now);
    case JobPhase::over: return false;
  }
  return false;
}

void Leader::rest() {
  task_.cancel();
  stage_ = Stage::waiting;
  enough_since_.reset();
  waiting_since_.reset();
  poisoned_.reset();
  if (!ends()) grace_end_.reset();
  some_joined_.reset();
  joined_end_.reset();
}

void Leader::give_up(const std::string& why) {
  rest();
  if (!board_.decided() || board_.decided()->phase == JobPhase::over) return;
  job_ = *board_.decided();
  job_.failure.reset();
  end(RunOutcome::failed, why);
}

void Leader::decide() {
  ++job_.revision;
  board_.decide(job_);
}

void Leader::end(RunOutcome outcome, std::string why, bool is_safe) {
  job_.phase = JobPhase::over;
  job_.outcome = outcome;
  job_.why = std::move(why);
  job_.is_safe = is_safe;
  if (outcome != RunOutcome::failed && outcome != RunOutcome::no_progress) job_.failure.reset();
  decide();
}

// A generation that runs.

bool Leader::run(Time now) {
  if (const auto failure = find_failure()) {
    stop_for(*failure, now);
    return true;
  }
  if (are_all(NodePhase::done)) {
    if (is_wanted(Request::stop)) job_.outcome = RunOutcome::preempted;
    // Asked to end, but not for good: they are to be started anew, in another number.
    const bool resizes = job_.proposal.request == Request::stop && !ends();
    if (!resizes && !ends()) job_.outcome = RunOutcome::finished;
    stop_to(ends() ? "asked to end" : "");
    return true;
  }
  if (ends() && !grace_end_) grace_end_ = now + ticks(Seconds(options_.grace_seconds));
  if (grace_end_ && now >= *grace_end_) {
    stop_to(fmt::format("asked to end, and the ranks hadn't ended after {:.0f} s", options_.grace_seconds));
    return true;
  }
  if (!have_all_begun()) return end_before_start();
  if (settle_proposal() || tell_stragglers(now)) return true;
  return ask_as_due(now);
}

bool Leader::end_before_start() {
  if (!is_wanted(Request::stop)) return false;
  job_.outcome = RunOutcome::preempted;
  stop_to("asked to end before all ranks ran");
  return true;
}

std::optional<RunFailure> Leader::find_failure() const {
  for (const Share& share : job_.shares) {
    const NodeState* const state = node(share);
    if (state == nullptr || !state->trouble.empty()) {
      return RunFailure{.cause = RunCause::node,
                        .attempt = job_.generation,
                        .rank = share.first_rank,
                        .detail = state == nullptr ? fmt::format("node {} is gone", share.node)
                                                   : fmt::format("node {}: {}", share.node, state->trouble)};
    }
    if (state->generation == job_.generation && state->phase == NodePhase::failed && state->failure)
      return state->failure;
    // It gave the generation up, and whoever led has gone before it could tell why.
    if (state->generation >= job_.generation &&
        (state->phase == NodePhase::preparing || state->phase == NodePhase::ready)) {
      return RunFailure{.cause = RunCause::node,
                        .attempt = job_.generation,
                        .rank = share.first_rank,
                        .detail = fmt::format("node {} gave up attempt {}", share.node, job_.generation)};
    }
  }
  return std::nullopt;
}

void Leader::stop_for(const RunFailure& failure, Time now) {
  ++failures_;
  failed_at_ = now;
  RunEvent event{.kind = failure.cause == RunCause::silence ? RunEventKind::heartbeat_lost : RunEventKind::failed,
                 .text = failure.detail,
                 .attempt = job_.generation,
                 .step = failure.step,
                 .rank = failure.rank,
                 .failure = failure};
  if (failure.cause == RunCause::silence) {
    observer_.event(event);
    event.kind = RunEventKind::failed;
  }
  observer_.event(event);
  if (is_wanted(Request::stop)) job_.outcome = RunOutcome::preempted;
  if (!ends()) job_.failure = failure;
  job_.is_counted = false;
  stop_to(failure.detail);
}

void Leader::stop_to(std::string why) {
  job_.phase = JobPhase::stop;
  job_.why = std::move(why);
  job_.reached = last_step();
  job_.proposal = {};
  decide();
}

bool Leader::stop(Time) {
  for (const NodeState* state : sharing()) {
    const bool has_stopped = state->generation >= job_.generation &&
                             (state->phase == NodePhase::preparing || state->phase == NodePhase::ready);
    // One that hasn't begun it won't: it looks at the phase first.
    const bool never_began = state->generation < job_.generation;
    if (!has_stopped && !never_began && state->trouble.empty()) return false;
  }
  job_.phase = JobPhase::gather;
  rest();
  decide();
  return true;
}

// What nodes say.

/// Nothing for one that is gone, or was started anew.
const NodeState* Leader::node(const Share& share) const {
  const auto& nodes = board_.nodes();
  const auto found = std::find_if(nodes.begin(), nodes.end(), [&](const NodeState& state) {
    return state.name == share.node && state.life == share.life;
  });
  return found == nodes.end() ? nullptr : &*found;
}

std::vector<NodeState> Leader::nodes_to_deal_to() const {
  std::vector<NodeState> found = board_.nodes();
  std::erase_if(found, [](const NodeState& state) { return state.phase == NodePhase::preparing; });
  return found;
}

std::vector<const NodeState*> Leader::sharing() const {
  std::vector<const NodeState*> found;
  for (const Share& share : job_.shares) {
    if (const NodeState* const state = node(share)) found.push_back(state);
  }
  return found;
}

bool Leader::are_all(NodePhase phase) const {
  const auto nodes = sharing();
  return nodes.size() == job_.shares.size() && std::all_of(nodes.begin(), nodes.end(), [&](const NodeState* state) {
           return state->generation == job_.generation && state->phase == phase;
         });
}

bool Leader::could_grow() const {
  const auto possible = deal(nodes_to_deal_to(), rules_);
  // Only where all ranks would end at the same step, with it saved.
  const auto nodes = sharing();
  return possible && possible->world_size > job_.world_size &&
         std::all_of(nodes.begin(), nodes.end(), [](const NodeState* state) { return state->has_joined; });
}

bool Leader::have_all_begun() const {
  const auto nodes = sharing();
  return std::all_of(nodes.begin(), nodes.end(),
                     [&](const NodeState* state) { return state->generation == job_.generation; });
}

std::optional<std::uint64_t> Leader::last_step() const {
  std::optional<std::uint64_t> last;
  for (const NodeState* state : sharing()) {
    if (state->generation == job_.generation) last = std::max(last, state->last_step);
  }
  return last;
}

bool Leader::is_wanted(Request request) const {
  const auto& nodes = board_.nodes();
  return std::any_of(nodes.begin(), nodes.end(), [&](const NodeState& state) { return state.wants == request; });
}

}  // namespace ckpt::run
