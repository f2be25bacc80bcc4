// SPDX-License-Identifier: Apache-2.0
#include "run/leader.hpp"

#include <ckpt/bench.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace ckpt::run {
namespace {

using Seconds = std::chrono::duration<double>;
using nlohmann::json;

/// Where no failure has been seen yet, one a day is taken for granted: intervals come out long rather than endless.
constexpr double prior_seconds = 24 * 3600;
/// Until a first save has shown what it costs.
constexpr double first_interval = 300;
/// Nodes come up one after the other: so long is waited for more, where more could come. Who was there before comes
/// back sooner.
constexpr std::chrono::seconds first_settling(5);
constexpr std::chrono::seconds settling(1);
/// When the grace is over: for what is staged, and to see what is durable.
constexpr std::chrono::seconds last_look(10);

template <class D>
std::chrono::steady_clock::duration ticks(D duration) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(duration);
}

template <class T>
json optional_json(const std::optional<T>& value) {
  return value ? json(*value) : json();
}

json to_json(const StoreNews& news) {
  return {{"newest", optional_json(news.newest)},
          {"save_seconds", optional_json(news.save_seconds)},
          {"stored_bytes", news.stored_bytes},
          {"has_older", news.has_older},
          {"highest_attempt", optional_json(news.highest_attempt)},
          {"free_bytes", news.free_bytes}};
}

json to_json(const Recovery& recovery) {
  json passed_over = json::array();
  for (const auto& passed : recovery.passed_over)
    passed_over.push_back({{"step", passed.step}, {"reason", passed.reason}});
  return {{"attempt", recovery.attempt},
          {"step", optional_json(recovery.step)},
          {"passed_over", std::move(passed_over)},
          {"mended", recovery.mended}};
}

template <class T>
std::optional<T> optional_from(const json& value) {
  if (value.is_null()) return std::nullopt;
  return value.get<T>();
}

StoreNews news_from(const json& value) {
  return {.newest = optional_from<std::uint64_t>(value.at("newest")),
          .save_seconds = optional_from<double>(value.at("save_seconds")),
          .stored_bytes = value.at("stored_bytes").get<std::uint64_t>(),
          .has_older = value.at("has_older").get<bool>(),
          .free_bytes = value.at("free_bytes").get<std::uint64_t>(),
          .highest_attempt = optional_from<std::uint64_t>(value.at("highest_attempt"))};
}

Recovery recovery_from(const json& value) {
  Recovery recovery{.attempt = value.at("attempt").get<std::uint64_t>(),
                    .step = optional_from<std::uint64_t>(value.at("step")),
                    .mended = value.at("mended").get<std::vector<std::string>>()};
  for (const json& passed : value.at("passed_over"))
    recovery.passed_over.push_back(
        {.step = passed.at("step").get<std::uint64_t>(), .reason = passed.at("reason").get<std::string>()});
  return recovery;
}

RetryRules retry_rules(const RunOptions& options) {
  return {.per_step = options.max_retries_per_step,
          .restarts = options.max_restarts,
          .backoff = Seconds(options.backoff_seconds)};
}

std::string from_where(std::optional<std::uint64_t> step) {
  return step ? fmt::format("from step {}", *step) : std::string("from the beginning");
}

}  // namespace

Leader::Leader(const RunOptions& options, Board& board, RunObserver& observer)
    : options_(options),
      board_(board),
      observer_(observer),
      rules_{.least_nodes = options.min_nodes,
             .most_nodes = options.nodes,
             .least_ranks = options.min_ranks,
             .multiple_of = options.multiple_of},
      retries_(retry_rules(options)),
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
  if (!board_.knows_nodes() || !board_.job()) return false;
  job_ = *board_.job();
  switch (job_.phase) {
    case JobPhase::gather: return gather(now);
    case JobPhase::run: return run(now);
    case JobPhase::stop: return stop(now);
    case JobPhase::over: return false;
  }
  return false;
}

// From ready nodes to a generation that runs.

bool Leader::gather(Time now) {
  if (end_between(now)) return true;
  for (const NodeState& state : board_.nodes()) {
    if (state.trouble.empty() || rules_.most_nodes > 1 || outcome_) continue;
    end(RunOutcome::failed, state.trouble);
    return true;
  }
  if (const auto result = task_.turn(now, observer_)) {
    if (stage_ == Stage::looking) {
      judge(news_from(*result), now);
    } else {
      start(recovery_from(*result), now);
    }
    return true;
  }
  if (task_.is_running()) return false;
  if (stage_ == Stage::pausing) {
    if (now >= stage_end_) begin_recovery();
    return false;
  }
  const auto& nodes = board_.nodes();
  const bool all_ready =
      std::all_of(nodes.begin(), nodes.end(), [](const NodeState& state) { return state.phase == NodePhase::ready; });
  // What is over needs no nodes to go on.
  const bool is_enough = all_ready && (outcome_ || deal(nodes, rules_));
  if (!is_enough) {
    enough_since_.reset();
    return false;
  }
  if (!enough_since_) enough_since_ = now;
  const auto patience = job_.generation == 0 ? first_settling : settling;
  if (!outcome_ && nodes.size() < rules_.most_nodes && now - *enough_since_ < patience) return false;
  begin_look();
  return false;
}

bool Leader::end_between(Time now) {
  if (is_wanted(Request::stop) && !outcome_) {
    task_.cancel();
    stage_ = Stage::waiting;
    if (!failure_) {
      end(RunOutcome::preempted, "asked to end before any rank ran");
      return true;
    }
    // What a failed attempt has staged is worth a last save.
    outcome_ = RunOutcome::preempted;
    failure_.reset();
    grace_end_ = now + ticks(Seconds(options_.grace_seconds));
    stop_to("asked to end after a failure");
    return true;
  }
  if (outcome_ != RunOutcome::preempted || !grace_end_ || now < *grace_end_ + last_look) return false;
  task_.cancel();
  end(*outcome_, job_.why, !reached_ || durable_ >= reached_);
  return true;
}

void Leader::begin_look() {
  stage_ = Stage::looking;
  task_.start([store = options_.store](TaskVoice&) { return to_json(look(store)); });
}

void Leader::judge(const StoreNews& news, Time now) {
  stage_ = Stage::waiting;
  take(news, now);
  if (outcome_) {
    const bool is_safe = !reached_ || (news.newest && *news.newest >= *reached_);
    end(*outcome_, job_.why, *outcome_ != RunOutcome::preempted || is_safe);
    return;
  }
  if (!failure_) {
    begin_recovery();
    return;
  }
  // Two that take turns would never end: each takes the other's saves for its own failures.
  if (rules_.most_nodes == 1 && news.highest_attempt > std::max(opened_, job_.generation))
    throw Error(Errc::exists,
                fmt::format("another job has opened store '{}' with attempt {}, and this one's attempt {} is over: {}",
                            options_.store, *news.highest_attempt, job_.generation, failure_->detail))
        .with_hint("a store serves one job at a time; start this one again if the other has ended");
  const auto verdict = retries_.count(job_.resume_step, news.newest);
  if (verdict == Retries::Verdict::too_often) {
    end(RunOutcome::failed, options_.max_restarts == 0U
                                ? failure_->detail
                                : fmt::format("restarted {} times, which is the most allowed; then {}",
                                              retries_.restarts(), failure_->detail));
    return;
  }
  const bool is_poisoned = verdict == Retries::Verdict::poisoned;
  // It isn't the checkpoint's fault if none can follow it; and the last one isn't given up.
  const bool is_full = news.newest && news.free_bytes < news.stored_bytes;
  if (verdict == Retries::Verdict::no_progress || (is_poisoned && (is_full || !news.has_older))) {
    const std::string room = is_full
                                 ? fmt::format("; the store has room for {} bytes, and its newest checkpoint took {}",
                                               news.free_bytes, news.stored_bytes)
                                 : std::string();
    end(RunOutcome::no_progress, fmt::format("{} failures without a new checkpoint; the last: {}{}", retries_.in_vain(),
                                             failure_->detail, room));
    return;
  }
  if (is_poisoned) poisoned_ = job_.resume_step;
  const auto pause = retries_.pause();
  stage_ = Stage::pausing;
  stage_end_ = now + ticks(pause);
  if (pause.count() > 0)
    observer_.event({.kind = RunEventKind::waiting,
                     .text = fmt::format("waiting {:.1f} s before the next attempt", pause.count()),
                     .attempt = job_.generation,
                     .seconds = pause.count()});
}

void Leader::begin_recovery() {
  stage_ = Stage::recovering;
  RecoveryRequest request{.store = options_.store,
                          .level = options_.verify,
                          .from = options_.from,
                          .peer = options_.peer,
                          .poisoned = std::exchange(poisoned_, std::nullopt),
                          .attempt = board_.next_generation(),
                          .jobs = options_.jobs};
  // What a quick look passes, and ranks then die from, deserves a thorough one.
  if (retries_.in_vain() > 1) request.level = VerifyLevel::deep;
  if (request.poisoned) {
    request.why_poisoned = fmt::format("the job died from it {} times: {}", options_.max_retries_per_step,
                                       failure_ ? failure_->detail : std::string());
    observer_.event({.kind = RunEventKind::poisoned,
                     .text = fmt::format("step {} is marked as poisoned: {}", *request.poisoned, request.why_poisoned),
                     .attempt = job_.generation,
                     .step = request.poisoned});
  }
  task_.start([request](TaskVoice& voice) { return to_json(recover(request, voice)); });
}

void Leader::start(const Recovery& recovery, Time now) {
  stage_ = Stage::waiting;
  opened_ = recovery.attempt;
  enough_since_.reset();
  for (const auto& passed : recovery.passed_over)
    observer_.event({.kind = RunEventKind::passed_over,
                     .text = fmt::format("step {} is passed over: {}", passed.step, passed.reason),
                     .attempt = recovery.attempt,
                     .step = passed.step});
  for (const std::string& text : recovery.mended) observer_.warning(text);
  const auto dealt = deal(board_.nodes(), rules_);
  // A node has left meanwhile: the next turn gathers again.
  if (!dealt) return;
  const std::uint32_t before = job_.world_size;
  job_.generation = recovery.attempt;
  job_.phase = JobPhase::run;
  job_.shares = dealt->shares;
  job_.world_size = dealt->world_size;
  job_.resume_step = recovery.step;
  job_.master_address = node(dealt->shares.front().node)->address;
  job_.master_port = node(dealt->shares.front().node)->port;
  job_.restarts = retries_.restarts();
  job_.proposal = {};
  job_.why.clear();
  set_interval();
  const std::string what = fmt::format("attempt {}: {} rank{} {}", job_.generation, job_.world_size,
                                       job_.world_size == 1 ? "" : "s", from_where(job_.resume_step));
  RunEvent event{.kind = RunEventKind::restored,
                 .text = what,
                 .attempt = job_.generation,
                 .step = job_.resume_step,
                 .ranks = job_.world_size};
  if (failed_at_) event.seconds = Seconds(now - *failed_at_).count();
  observer_.event(event);
  if (before != 0 && before != job_.world_size)
    observer_.event({.kind = RunEventKind::resized,
                     .text = fmt::format("from {} to {} ranks", before, job_.world_size),
                     .attempt = job_.generation,
                     .ranks = job_.world_size});
  if (failure_ || resizes_) {
    ++account_.restarts[failure_ ? failure_->cause : RunCause::resize];
    event.kind = RunEventKind::restarted;
    event.text = fmt::format("restarted {}", from_where(job_.resume_step));
    event.failure = failure_;
    observer_.event(event);
  }
  if (failure_) {
    // What was lost before is counted already.
    account_.lost_seconds += Seconds(now - std::max(durable_at_, started_at_)).count();
    if (reached_) account_.steps_redone += *reached_ - std::min(*reached_, job_.resume_step.value_or(0));
  }
  started_at_ = now;
  failure_.reset();
  failed_at_.reset();
  reached_.reset();
  resizes_ = false;
  next_growth_ = now + ticks(Seconds(options_.health_seconds));
  next_save_.reset();
  board_.decide(job_);
}

void Leader::end(RunOutcome outcome, std::string why, bool is_safe) {
  job_.phase = JobPhase::over;
  job_.outcome = outcome;
  job_.why = std::move(why);
  job_.is_safe = is_safe;
  job_.failure = outcome == RunOutcome::failed || outcome == RunOutcome::no_progress ? failure_ : std::nullopt;
  job_.restarts = retries_.restarts();
  board_.decide(job_);
}

// A generation that runs.

bool Leader::run(Time now) {
  if (const auto failure = find_failure()) {
    stop_for(*failure, now);
    return true;
  }
  if (are_all(NodePhase::done)) {
    // Who leads may have changed since, but what the ranks were asked for and why is still to be seen.
    const bool is_asked = job_.proposal.request == Request::stop;
    ends_ |= is_wanted(Request::stop);
    resizes_ = is_asked && !ends_;
    if (!resizes_) outcome_ = ends_ ? RunOutcome::preempted : RunOutcome::finished;
    reached_ = ends_ ? last_step() : std::nullopt;
    stop_to(ends_ ? "asked to end" : "");
    return true;
  }
  if (grace_end_ && now >= *grace_end_) {
    outcome_ = RunOutcome::preempted;
    reached_ = last_step();
    stop_to(fmt::format("asked to end, and the ranks hadn't ended after {:.0f} s", options_.grace_seconds));
    return true;
  }
  if (!have_all_begun()) return end_before_start();
  if (settle_proposal()) return true;
  return ask_as_due(now);
}

bool Leader::end_before_start() {
  if (!is_wanted(Request::stop)) return false;
  outcome_ = RunOutcome::preempted;
  reached_ = last_step();
  stop_to("asked to end before all ranks ran");
  return true;
}

std::optional<RunFailure> Leader::find_failure() const {
  for (const Share& share : job_.shares) {
    const NodeState* const state = node(share.node);
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
    if (state->generation == job_.generation &&
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
  reached_ = last_step();
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
  if (ends_) {
    outcome_ = RunOutcome::preempted;
  } else {
    failure_ = failure;
  }
  stop_to(failure.detail);
}

void Leader::stop_to(std::string why) {
  job_.phase = JobPhase::stop;
  job_.is_last = outcome_.has_value();
  job_.why = std::move(why);
  job_.proposal = {};
  board_.decide(job_);
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
  stage_ = Stage::waiting;
  board_.decide(job_);
  return true;
}

// Requests to all ranks.

bool Leader::propose(Request request, Time now) {
  std::uint64_t step = 0;
  for (const NodeState* state : sharing()) step = std::max(step, state->next_step);
  job_.proposal = {.number = job_.proposal.number + 1, .request = request, .step = step, .is_agreed = false};
  board_.decide(job_);
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
  const auto nodes = sharing();
  const bool all_heard = std::all_of(nodes.begin(), nodes.end(), [&](const NodeState* state) {
    return state->phase != NodePhase::running || state->proposal == proposal.number;
  });
  if (!all_heard) return false;
  if (proposal.is_agreed) {
    const bool all_know = std::all_of(nodes.begin(), nodes.end(), [](const NodeState* state) {
      return state->phase != NodePhase::running || state->is_answered;
    });
    if (!all_know || proposal.request == Request::stop) return false;
    proposal.request = Request::none;
    board_.decide(job_);
    return true;
  }
  if (std::all_of(nodes.begin(), nodes.end(), [](const NodeState* state) { return state->is_in_time; })) {
    proposal.is_agreed = true;
  } else {
    ++proposal.number;
    for (const NodeState* state : nodes) proposal.step = std::max(proposal.step, state->next_step);
    // Nodes go on while this is told to them: one that was too late once gets more room.
    if (nodes.size() > 1) proposal.step += proposal.number;
  }
  board_.decide(job_);
  return true;
}

bool Leader::ask_as_due(Time now) {
  if (is_wanted(Request::stop) && !ends_) {
    ends_ = true;
    resizes_ = false;
    grace_end_ = now + ticks(Seconds(options_.grace_seconds));
  }
  if (job_.proposal.request == Request::stop) return false;
  if (ends_) return propose(Request::stop, now);
  if (now >= next_growth_ && could_grow()) {
    resizes_ = true;
    return propose(Request::stop, now);
  }
  if (job_.proposal.request != Request::none || (!options_.interval_seconds && !options_.interval_auto)) return false;
  if (!next_save_) next_save_ = now + ticks(Seconds(job_.interval_seconds.value_or(first_interval)));
  if (now < *next_save_) return false;
  set_interval();
  return propose(Request::save, now);
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

// What nodes say.

const NodeState* Leader::node(const std::string& name) const {
  const auto& nodes = board_.nodes();
  const auto found =
      std::find_if(nodes.begin(), nodes.end(), [&](const NodeState& state) { return state.name == name; });
  return found == nodes.end() ? nullptr : &*found;
}

std::vector<const NodeState*> Leader::sharing() const {
  std::vector<const NodeState*> found;
  for (const Share& share : job_.shares) {
    if (const NodeState* const state = node(share.node)) found.push_back(state);
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
  const auto possible = deal(board_.nodes(), rules_);
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
