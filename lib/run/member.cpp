// SPDX-License-Identifier: Apache-2.0
#include "run/member.hpp"

#include "os/small_file.hpp"
#include "run/processes.hpp"
#include "run/recovery.hpp"

#include <ckpt/restore.hpp>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

namespace ckpt::run {
namespace {

using nlohmann::json;

/// For a stack trace after SIGABRT.
constexpr std::chrono::milliseconds abort_patience(1500);
/// After a stop signal that can be caught.
constexpr std::chrono::seconds stop_patience(10);
/// What hangs in the kernel is left behind after that.
constexpr std::chrono::seconds kill_patience(10);
/// Ranks that don't look for requests may still wait for those that did, and ended.
constexpr std::chrono::seconds straggling_ranks_patience(5);

/// One that is free now, and so very likely in a second.
std::uint16_t free_port() {
  const os::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t size = sizeof address;
  if (!socket.valid() || ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    os::throw_errno(errno, "cannot find a free port");
  return ntohs(address.sin_port);
}

std::vector<std::uint32_t> all_slots(std::uint32_t count) {
  std::vector<std::uint32_t> slots(count);
  for (std::uint32_t slot = 0; slot < count; ++slot) slots[slot] = slot;
  return slots;
}

bool is_death_by(int status, int signal) {
  return (WIFSIGNALED(status) && WTERMSIG(status) == signal) ||
         (WIFEXITED(status) && WEXITSTATUS(status) == 128 + signal);
}

}  // namespace

Member::Member(const RunOptions& options, Board& board, RunObserver& observer, Household& household)
    : options_(options),
      board_(board),
      observer_(observer),
      household_(household),
      slots_({.least = options.min_ranks,
              .most = options.max_ranks,
              .multiple_of = options.nodes == 1 ? options.multiple_of : 1,
              .retries = options.max_retries_per_step}),
      health_(options.health_check, options.environment, options.max_ranks, Seconds(options.health_seconds)),
      task_(options.store, Seconds(options.store_seconds)) {
  state_.name = options.node_name;
  state_.life = os::unique_name();
  state_.address = options.node_address;
  board_.publish(state_);
}

void Member::add_to(std::vector<pollfd>& watched) const {
  task_.add_to(watched);
  if (group_) group_->add_to(watched);
}

bool Member::set_ended(pid_t pid, int status) {
  // What was told to end, and did, hasn't failed.
  if (group_ && was_told_to_end_ && is_death_by(status, SIGTERM)) status = 0;
  return task_.set_ended(pid) || health_.set_ended(pid, status) || (group_ && group_->set_ended(pid, status));
}

std::vector<pid_t> Member::own_helpers() const {
  auto pids = task_.pids();
  const auto checks = health_.pids();
  pids.insert(pids.end(), checks.begin(), checks.end());
  return pids;
}

std::optional<Clock::time_point> Member::next_deadline() const {
  return group_ ? group_->next_deadline() : std::nullopt;
}

void Member::pass_on(int signal) const {
  if (group_) group_->signal(signal);
}

std::vector<RunRank> Member::ranks(Clock::time_point now) const {
  return group_ ? group_->states(now) : std::vector<RunRank>{};
}

void Member::tell(RunEventKind kind, std::string text) {
  observer_.event({.kind = kind, .text = std::move(text), .attempt = state_.generation});
}

bool Member::turn(Clock::time_point now) {
  const NodeState before = state_;
  health_.turn(now);
  take_health();
  const auto& job = board_.job();
  if (job) {
    const Share* const share = job->share_of(state_);
    const bool is_current = job->phase == JobPhase::run && job->generation == state_.generation;
    if (group_ && !is_current) kill_ranks();
    if (state_.phase == NodePhase::preparing) prepare(*job, now);
    if (state_.phase == NodePhase::ready && job->phase == JobPhase::run && share != nullptr &&
        job->generation > state_.generation)
      begin(*job, *share);
    if (group_) watch(*job, now);
  }
  board_.publish(state_);
  return before.phase != state_.phase || before.proposal != state_.proposal || before.wants != state_.wants ||
         before.is_answered != state_.is_answered;
}

// Between generations.

void Member::prepare(const JobState& job, Clock::time_point now) {
  is_checked_ |= !health_.has_command() || job.outcome.has_value();
  if (!is_checked_ && !health_.is_running() && now >= next_check_) check_slots(now);
  if (const auto result = task_.turn(now, observer_)) {
    is_drained_ = true;
    for (const auto& left : *result) observer_.warning(fmt::format("stays staged: {}", left.get<std::string>()));
  } else if (!is_drained_ && !task_.is_running()) {
    task_.start(
        [store = options_.store, jobs = options_.jobs](TaskVoice& voice) { return json(drain(store, jobs, voice)); });
  }
  if (!is_checked_ || !is_drained_) return;
  state_.ranks = static_cast<std::uint32_t>(slots_.usable().size());
  state_.port = options_.master_port != 0 ? options_.master_port : free_port();
  state_.phase = NodePhase::ready;
}

void Member::check_slots(Clock::time_point now) {
  // Those that are left out are looked at while the others run, unless they're needed.
  const auto in_use = slots_.usable();
  checks_all_ = true;
  health_.start(in_use.size() >= options_.min_ranks ? in_use : all_slots(options_.max_ranks));
  next_check_ = now + ticks(Seconds(options_.health_seconds));
}

void Member::take_health() {
  if (health_.is_running()) return;
  const auto results = health_.take_results();
  if (results.empty()) return;
  for (const auto& [slot, is_fit] : results) {
    const auto out = slots_.left_out();
    const bool was_out = std::find(out.begin(), out.end(), slot) != out.end();
    if (is_fit && was_out) slots_.take_back(slot);
    if (!is_fit && !was_out) {
      slots_.leave_out(slot);
      tell(RunEventKind::left_out, fmt::format("slot {} is left out: it does not pass the health check", slot));
    }
  }
  const auto usable = static_cast<std::uint32_t>(slots_.usable().size());
  if (state_.phase != NodePhase::preparing) {
    state_.ranks = usable;
    return;
  }
  // It was about slots that are left out, and begun while the others ran.
  if (!std::exchange(checks_all_, false)) return;
  is_checked_ = usable >= options_.min_ranks;
  checks_in_vain_ = is_checked_ ? 0 : checks_in_vain_ + 1;
  if (is_checked_) {
    state_.trouble.clear();
    return;
  }
  const std::string what = fmt::format("{} of {} slots pass the health check, and {} are needed", usable,
                                       options_.max_ranks, options_.min_ranks);
  if (checks_in_vain_ >= options_.max_retries_per_step) {
    state_.trouble = what;
  } else {
    tell(RunEventKind::waiting, what);
  }
}

void Member::begin(const JobState& job, const Share& share) {
  if (!options_.restore_to.empty() && job.resume_step && !is_restored_) {
    if (!task_.is_running()) {
      task_.start([options = options_, step = *job.resume_step](TaskVoice& voice) {
        RestoreOptions restore_options;
        restore_options.from = {.store = options.store, .selector = {.kind = Selector::Kind::step, .step = step}};
        restore_options.directory = options.restore_to;
        restore_options.force = true;
        restore_options.replicas = options.from;
        restore_options.peer = options.peer;
        restore_options.jobs = options.jobs;
        const RestoreReport report = restore(restore_options, voice);
        return json{{"files", report.files}, {"unchanged", report.unchanged}};
      });
    }
    const auto result = task_.turn(Clock::now(), observer_);
    if (!result) return;
    is_restored_ = true;
  }
  start(job, share);
}

void Member::start(const JobState& job, const Share& share) {
  Round round{.attempt = job.generation,
              .resume_step = job.resume_step,
              .slots = slots_.usable(),
              .first_rank = share.first_rank,
              .world_size = job.world_size,
              .node = static_cast<std::uint32_t>(&share - job.shares.data()),
              .nodes = static_cast<std::uint32_t>(job.shares.size()),
              .master_address = job.master_address,
              .master_port = job.master_port};
  round.slots.resize(std::min<std::size_t>(round.slots.size(), share.ranks));
  GroupSettings settings{.command = options_.command,
                         .job = {.inherited = options_.environment,
                                 .store = options_.store,
                                 .resume_directory = options_.restore_to,
                                 .run_id = options_.run_id,
                                 .all_slots = options_.max_ranks,
                                 .restarts = job.retries.restarts,
                                 .most_restarts = options_.max_restarts,
                                 .interval_seconds = job.interval_seconds,
                                 .heartbeat_seconds = options_.heartbeat_seconds},
                         .log_directory = options_.log_directory,
                         .log_limits = {.file_bytes = options_.log_bytes, .old_files = options_.log_files}};
  if (options_.heartbeat_seconds) settings.heartbeat = Seconds(*options_.heartbeat_seconds);
  if (options_.start_seconds) settings.start_limit = Seconds(*options_.start_seconds);
  state_.generation = job.generation;
  state_.failure.reset();
  state_.last_step.reset();
  state_.proposal = 0;
  state_.is_answered = true;
  was_told_to_end_ = false;
  joined_end_.reset();
  group_.emplace(std::move(settings), std::move(round));
  state_.phase = NodePhase::running;
  observer_.event({.kind = RunEventKind::started,
                   .text = fmt::format("rank{} {} started", share.ranks == 1 ? "" : "s",
                                       share.ranks == 1 ? fmt::format("{}", share.first_rank)
                                                        : fmt::format("{} to {}", share.first_rank,
                                                                      share.first_rank + share.ranks - 1)),
                   .attempt = job.generation,
                   .step = job.resume_step,
                   .ranks = share.ranks});
}

// While ranks run.

void Member::listen() {
  const auto trouble = group_->listen();
  if (trouble && !std::exchange(has_warned_of_log_, true)) observer_.warning(*trouble);
}

void Member::watch(const JobState& job, Clock::time_point now) {
  listen();
  state_.last_step = group_->last_step();
  state_.has_joined = group_->control().has_any_joined();
  state_.next_step = group_->control().next_step();
  answer(job.proposal);
  if (state_.phase != NodePhase::running) return;
  if (auto failure = group_->failure(now)) {
    fail(std::move(*failure));
    return;
  }
  if (group_->has_ended()) {
    state_.phase = NodePhase::done;
    return;
  }
  if (job.proposal.request == Request::stop && group_->have_joined_ended()) {
    if (!joined_end_) joined_end_ = now;
    if (now - *joined_end_ > straggling_ranks_patience) {
      was_told_to_end_ = true;
      group_->signal(SIGTERM);
      joined_end_ = now;
    }
  }
  const auto out = slots_.left_out();
  if (!out.empty() && health_.has_command() && !health_.is_running() && now >= next_check_) {
    checks_all_ = false;
    health_.start(out);
    next_check_ = now + ticks(Seconds(options_.health_seconds));
  }
}

void Member::answer(const Proposal& proposal) {
  ControlPage& control = group_->control();
  if (proposal.by_signal && !control.has_any_joined() && !std::exchange(was_told_to_end_, true))
    group_->signal(SIGTERM);
  if (proposal.number == state_.proposal) {
    if (proposal.is_agreed) control.agree();
    state_.is_answered = was_told_to_end_ || control.is_answered();
    return;
  }
  state_.proposal = proposal.number;
  if (proposal.request == Request::none) return;
  if (!control.has_any_joined()) {
    state_.is_in_time = true;
    return;
  }
  state_.is_in_time = control.propose(proposal.request, proposal.step);
  state_.next_step = control.next_step();
  state_.is_answered = false;
}

void Member::fail(RunFailure failure) {
  const bool is_silent = failure.cause == RunCause::silence || failure.cause == RunCause::slow_start;
  stop_ranks(is_silent ? std::optional(failure.local_rank) : std::nullopt);
  failure.last_lines = group_->last_lines(failure.local_rank);
  const std::uint32_t slot = group_->round().slots[failure.local_rank];
  if (slots_.rules().is_elastic() && slots_.count_failure(slot)) {
    tell(RunEventKind::left_out,
         fmt::format("slot {} is left out: its ranks failed {} times in a row", slot, slots_.rules().retries));
    next_check_ = Clock::now() + ticks(Seconds(options_.health_seconds));
  }
  state_.failure = std::move(failure);
  state_.phase = NodePhase::failed;
}

void Member::stop_ranks(std::optional<std::uint32_t> silent) {
  group_->signal(options_.stop_signal, silent);
  if (silent) end_silent(*silent);
  if (options_.stop_signal != SIGKILL) wait_for_end(stop_patience);
  kill_the_rest();
  listen();
}

void Member::kill_the_rest() {
  std::set<pid_t> spared;
  for (const pid_t pid : household_.helpers()) spared.insert(pid);
  const auto stuck =
      kill_all_below(spared, kill_patience, [&](pid_t pid, int status) { household_.set_ended(pid, status); });
  for (const pid_t pid : stuck)
    observer_.warning(fmt::format("process {} cannot be killed: it hangs in the kernel", pid));
}

void Member::end_silent(std::uint32_t local_rank) {
  // Pending before it's continued, the signal comes first: nothing else of the program runs.
  group_->signal_one(local_rank, SIGABRT);
  group_->signal_one(local_rank, SIGCONT);
  const auto end = Clock::now() + abort_patience;
  while (group_->is_running(local_rank) && Clock::now() < end) wait_for_end(std::chrono::milliseconds(20));
}

void Member::wait_for_end(Clock::duration patience) {
  const auto end = Clock::now() + patience;
  while (!group_->has_ended() && Clock::now() < end) {
    std::vector<pollfd> watched;
    group_->add_to(watched);
    (void)::poll(watched.data(), watched.size(), 10);
    listen();
    board_.keep_in_touch(Clock::now());
    int status = 0;
    for (pid_t pid = ::waitpid(-1, &status, WNOHANG); pid > 0; pid = ::waitpid(-1, &status, WNOHANG))
      household_.set_ended(pid, status);
  }
}

void Member::publish_trouble(const std::string& why) {
  state_.trouble = why;
  board_.publish(state_);
}

void Member::kill_ranks() {
  if (group_) {
    stop_ranks(std::nullopt);
  } else {
    // A group that couldn't be started whole has left some.
    kill_the_rest();
  }
  group_.reset();
  state_.phase = NodePhase::preparing;
  is_checked_ = false;
  is_drained_ = false;
  is_restored_ = false;
  next_check_ = {};
}

}  // namespace ckpt::run
