// SPDX-License-Identifier: Apache-2.0
#include "run/leader.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace ckpt::run {
namespace {

using Seconds = std::chrono::duration<double>;
using nlohmann::json;

/// Nodes come up one after the other: so long is waited for more, where more could come. Who was there before comes
/// back sooner.
constexpr std::chrono::seconds first_settling(5);
constexpr std::chrono::seconds settling(1);
/// When the grace is over: for what is staged, and to see what is durable.
constexpr std::chrono::seconds last_look(10);
/// One of a fixed number of nodes that was there before is waited for so long, until it has been started again.
constexpr Seconds return_patience(60);

template <class D>
std::chrono::steady_clock::duration ticks(D duration) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(duration);
}

template <class T>
json optional_json(const std::optional<T>& value) {
  return value ? json(*value) : json();
}

json to_json(const StoreNews& news) {
  return {{"newest", optional_json(news.newest)}, {"save_seconds", optional_json(news.save_seconds)},
          {"stored_bytes", news.stored_bytes},    {"has_older", news.has_older},
          {"free_bytes", news.free_bytes},        {"highest_attempt", news.highest_attempt.value_or(0)}};
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
          .highest_attempt = value.at("highest_attempt").get<std::uint64_t>()};
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
  grace_end_.reset();
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

// From ready nodes to a generation that runs.

bool Leader::gather(Time now) {
  if (end_between(now)) return true;
  for (const NodeState& state : board_.nodes()) {
    // Where nodes come and go, it's no one's trouble but its own.
    if (state.trouble.empty() || job_.outcome || !options_.cluster.empty()) continue;
    end(RunOutcome::failed,
        rules_.most_nodes == 1 ? state.trouble : fmt::format("node {}: {}", state.name, state.trouble));
    return true;
  }
  try {
    if (const auto result = task_.turn(now, observer_)) {
      if (stage_ == Stage::looking) {
        judge(news_from(*result), now);
      } else {
        start(recovery_from(*result), now);
      }
      return true;
    }
  } catch (const Error& error) {
    // Another that decided before this one was faster at the store: its number is seen now.
    if (error.code() != Errc::exists || !board_.keeps_count()) throw;
    stage_ = Stage::waiting;
    return false;
  }
  if (task_.is_running()) return false;
  if (stage_ == Stage::pausing || stage_ == Stage::numbering) {
    if (now >= stage_end_) begin_recovery();
    return false;
  }
  // What is over needs no nodes to go on.
  const auto nodes = nodes_to_deal_to();
  const bool is_enough = are_ready() && (job_.outcome || deal(nodes, rules_));
  if (!is_enough) {
    enough_since_.reset();
    return end_waiting(now);
  }
  waiting_since_.reset();
  if (!enough_since_) enough_since_ = now;
  const auto patience = job_.generation == 0 ? first_settling : settling;
  if (!job_.outcome && nodes.size() < rules_.most_nodes && now - *enough_since_ < patience) return false;
  begin_look();
  return false;
}

bool Leader::end_between(Time now) {
  if (is_wanted(Request::stop) && !job_.outcome) {
    rest();
    if (job_.generation == 0) {
      end(RunOutcome::preempted, "asked to end before any rank ran");
      return true;
    }
    // What the last attempt has staged is worth waiting for.
    job_.outcome = RunOutcome::preempted;
    job_.why = "asked to end between two attempts";
    decide();
  }
  if (!ends()) return false;
  if (!grace_end_) grace_end_ = now + ticks(Seconds(options_.grace_seconds));
  if (now < *grace_end_ + last_look) return false;
  const bool is_safe = !job_.reached || durable_ >= job_.reached;
  rest();
  end(*job_.outcome, job_.why, is_safe);
  return true;
}

bool Leader::are_ready() const {
  const auto& nodes = board_.nodes();
  return std::all_of(nodes.begin(), nodes.end(), [&](const NodeState& state) {
    // One that ran ranks may hold what they have staged, and so is waited for; one that only comes isn't.
    const bool is_needed = job_.generation == 0 || job_.share_of(state) != nullptr;
    return state.phase == NodePhase::ready || !state.trouble.empty() || !is_needed;
  });
}

/// Where the number of nodes is fixed, one that has gone for good ends the job.
bool Leader::end_waiting(Time now) {
  const std::size_t there = board_.nodes().size();
  if (!options_.cluster.empty() || there >= rules_.least_nodes) {
    waiting_since_.reset();
    return false;
  }
  if (!waiting_since_) waiting_since_ = now;
  const Seconds join(options_.join_seconds);
  const Seconds patience = job_.generation == 0 ? join : std::min(join, return_patience);
  if (now - *waiting_since_ < patience) return false;
  end(RunOutcome::failed, fmt::format("{} of {} nodes are there after {:.0f} s{}", there, rules_.least_nodes,
                                      patience.count(), job_.failure ? "; before that, " + job_.failure->detail : ""));
  return true;
}

void Leader::begin_look() {
  stage_ = Stage::looking;
  task_.start([store = options_.store](TaskVoice&) { return to_json(look(store)); });
}

void Leader::judge(const StoreNews& news, Time now) {
  stage_ = Stage::waiting;
  least_generation_ = news.highest_attempt.value_or(0) + 1;
  take(news, now);
  if (job_.outcome) {
    const bool is_safe = !job_.reached || (news.newest && *news.newest >= *job_.reached);
    end(*job_.outcome, job_.why, !ends() || is_safe);
    return;
  }
  if (!job_.failure || job_.is_counted) {
    begin_recovery();
    return;
  }
  // Two that take turns would never end: each takes the other's saves for its own failures.
  if (!board_.keeps_count() && news.highest_attempt > std::max(opened_, job_.generation))
    throw Error(Errc::exists,
                fmt::format("another job has opened store '{}' with attempt {}, and this one's attempt {} is over: {}",
                            options_.store, *news.highest_attempt, job_.generation, job_.failure->detail))
        .with_hint("a store serves one job at a time; start this one again if the other has ended");
  Retries retries(retry_rules(options_), job_.retries);
  const auto verdict = retries.count(job_.resume_step, news.newest);
  job_.retries = retries.counts();
  job_.is_counted = true;
  if (verdict == Retries::Verdict::too_often) {
    end(RunOutcome::failed, options_.max_restarts == 0U
                                ? job_.failure->detail
                                : fmt::format("restarted {} times, which is the most allowed; then {}",
                                              job_.retries.restarts, job_.failure->detail));
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
    end(RunOutcome::no_progress, fmt::format("{} failures without a new checkpoint; the last: {}{}",
                                             job_.retries.in_vain, job_.failure->detail, room));
    return;
  }
  if (is_poisoned) poisoned_ = job_.resume_step;
  decide();
  const auto pause = retries.pause();
  stage_ = Stage::pausing;
  stage_end_ = now + ticks(pause);
  if (pause.count() > 0)
    observer_.event({.kind = RunEventKind::waiting,
                     .text = fmt::format("waiting {:.1f} s before the next attempt", pause.count()),
                     .attempt = job_.generation,
                     .seconds = pause.count()});
}

void Leader::begin_recovery() {
  std::optional<std::uint64_t> number;
  if (board_.keeps_count()) {
    stage_ = Stage::numbering;
    number = board_.next_generation(std::max(least_generation_, job_.generation + 1));
    if (!number) return;
  }
  stage_ = Stage::recovering;
  RecoveryRequest request{.store = options_.store,
                          .level = options_.verify,
                          .from = options_.from,
                          .peer = options_.peer,
                          .poisoned = std::exchange(poisoned_, std::nullopt),
                          .attempt = number,
                          .jobs = options_.jobs};
  // What a quick look passes, and ranks then die from, deserves a thorough one.
  if (job_.retries.in_vain > 1) request.level = VerifyLevel::deep;
  if (request.poisoned) {
    request.why_poisoned = fmt::format("the job died from it {} times: {}", options_.max_retries_per_step,
                                       job_.failure ? job_.failure->detail : std::string());
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
  const auto dealt = deal(nodes_to_deal_to(), rules_);
  // A node has left meanwhile: the next turn gathers again.
  if (!dealt) return;
  const std::uint32_t before = job_.world_size;
  const bool resizes = job_.generation > 0 && !job_.failure;
  job_.generation = recovery.attempt;
  job_.phase = JobPhase::run;
  job_.shares = dealt->shares;
  job_.world_size = dealt->world_size;
  job_.resume_step = recovery.step;
  const NodeState* const first = node(dealt->shares.front());
  job_.master_address = first->address;
  job_.master_port = first->port;
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
  if (job_.failure || resizes) {
    ++account_.restarts[job_.failure ? job_.failure->cause : RunCause::resize];
    event.kind = RunEventKind::restarted;
    event.text = fmt::format("restarted {}", from_where(job_.resume_step));
    event.failure = job_.failure;
    observer_.event(event);
  }
  if (job_.failure) {
    // What was lost before is counted already.
    account_.lost_seconds += Seconds(now - std::max(durable_at_, started_at_)).count();
    if (job_.reached) account_.steps_redone += *job_.reached - std::min(*job_.reached, job_.resume_step.value_or(0));
  }
  job_.failure.reset();
  job_.reached.reset();
  job_.is_counted = false;
  started_at_ = now;
  failed_at_.reset();
  grace_end_.reset();
  some_joined_.reset();
  joined_end_.reset();
  next_growth_ = now + ticks(Seconds(options_.health_seconds));
  next_save_.reset();
  decide();
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
  if (ends() && !have_all_begun()) {
    stop_to("asked to end before all ranks ran");
    return true;
  }
  if (settle_proposal() || tell_stragglers(now)) return true;
  return ask_as_due(now);
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
