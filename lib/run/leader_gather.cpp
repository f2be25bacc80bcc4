// SPDX-License-Identifier: Apache-2.0
// A leader's way from ready nodes to a generation that runs: is there enough, what is in the store, what follows from
// the last failure, which checkpoint, and who gets which ranks.
#include "run/leader.hpp"
#include "run/optional_json.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace ckpt::run {
namespace {

using nlohmann::json;

/// Nodes come up one after the other: so long is waited for more, where more could come. Who was there before comes
/// back sooner.
constexpr std::chrono::seconds first_settling(5);
constexpr std::chrono::seconds settling(1);
/// One of a fixed number of nodes that was there before is waited for so long, until it has been started again.
constexpr Seconds return_patience(60);
/// When the grace is over: for what is staged, and to see what is durable.
constexpr std::chrono::seconds last_look(10);

json to_json(const StoreNews& news) {
  return {{"newest", optional_json(news.newest)}, {"save_seconds", optional_json(news.save_seconds)},
          {"stored_bytes", news.stored_bytes},    {"has_older", news.has_older},
          {"free_bytes", news.free_bytes},        {"highest_attempt", optional_json(news.highest_attempt)}};
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

/// Asked to end while no rank runs.
bool Leader::end_between(Time now) {
  if (is_wanted(Request::stop) && !job_.outcome) {
    const bool has_failed = job_.failure.has_value();
    rest();
    if (!has_failed) {
      end(RunOutcome::preempted, "asked to end before any rank ran");
      return true;
    }
    // What a failed attempt has staged is worth a last save.
    job_.outcome = RunOutcome::preempted;
    job_.failure.reset();
    stop_to("asked to end after a failure");
    return true;
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
  started_at_ = now;
  job_.failure.reset();
  job_.reached.reset();
  job_.is_counted = false;
  failed_at_.reset();
  grace_end_.reset();
  some_joined_.reset();
  joined_end_.reset();
  next_growth_ = now + ticks(Seconds(options_.health_seconds));
  next_save_.reset();
  decide();
}

}  // namespace ckpt::run
