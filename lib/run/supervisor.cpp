// SPDX-License-Identifier: Apache-2.0
// The loop of one node: takes in what happens (signals, deaths, heartbeats, output, other nodes), lets the leader
// decide if that's here, and does this node's part. It never touches the store itself, and waits for nothing but these.
#include "run/board.hpp"
#include "run/leader.hpp"
#include "run/member.hpp"
#include "run/processes.hpp"
#include "run/redis_board.hpp"
#include "run/store_watch.hpp"
#include "run/tcp_board.hpp"

#include <ckpt/error.hpp>
#include <ckpt/run.hpp>

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <set>
#include <utility>

namespace ckpt {

RunObserver::~RunObserver() = default;
void RunObserver::event(const RunEvent&) {}
void RunObserver::state(const RunState&) {}
void RunObserver::warning(std::string_view) {}

namespace run {
namespace {

/// What isn't an event is looked at so often: health checks, pauses, silence that isn't due yet.
constexpr std::chrono::milliseconds longest_wait(200);
constexpr std::chrono::seconds between_states(1);

void check_options(const RunOptions& options) {
  const auto refuse = [](const char* why) { throw Error(Errc::invalid_argument, why); };
  if (options.command.empty()) refuse("there is no command to run");
  if (options.store.empty()) refuse("the store has an empty name");
  if (options.min_ranks < 1 || options.min_ranks > options.max_ranks) refuse("the least ranks are from 1 to the most");
  if (options.multiple_of < 1) refuse("ranks come in groups of one at least");
  if (options.nodes == 1 && options.max_ranks - options.max_ranks % options.multiple_of < options.min_ranks)
    refuse("no number of ranks in that range is a multiple of the group");
  if (options.max_retries_per_step < 1) refuse("a checkpoint is tried once at least");
  if (options.min_nodes < 1 || options.min_nodes > options.nodes) refuse("the least nodes are from 1 to the most");
  if (!options.meeting.empty() && !options.cluster.empty()) refuse("nodes meet in one way");
  if (options.nodes > 1 && options.meeting.empty() && options.cluster.empty())
    refuse("several nodes have to meet somewhere");
  if (!options.meeting.empty() && (options.min_nodes != options.nodes || options.node_rank >= options.nodes))
    refuse("a fixed number of nodes is one number, and their ranks are below it");
  if (!options.cluster.empty() && options.node_name.empty()) refuse("a node of a cluster has a name");
  if (!(options.lease_seconds >= 0.5)) refuse("a lease of less than half a second ends before it's renewed");
  if (options.signal_fd < 0) refuse("there is no descriptor for signals");
}

std::unique_ptr<Board> make_board(const RunOptions& options) {
  if (!options.cluster.empty()) return open_redis_board(options);
  if (!options.meeting.empty()) return open_tcp_board(options);
  return std::make_unique<LocalBoard>();
}

class Supervisor final : public Household {
 public:
  Supervisor(const RunOptions& options, RunObserver& observer)
      : options_(options),
        observer_(observer),
        board_(make_board(options)),
        leader_(options, *board_, observer),
        member_(options, *board_, observer, *this),
        watch_(options.store),
        began_(Clock::now()) {}

  RunReport run() {
    try {
      while (!is_killed_ && !is_over() && !is_unwanted()) turn();
    } catch (const std::exception& error) {
      member_.kill_ranks();
      // Where nodes come and go, the others go on without this one.
      if (board_->leads() && (options_.cluster.empty() || is_leaders_)) leader_.give_up(error.what());
      member_.publish_trouble(error.what());
      board_->leave();
      throw;
    }
    member_.kill_ranks();
    if (is_killed_) member_.publish_trouble("ckpt-run was killed");
    board_->leave();
    return report();
  }

  [[nodiscard]] std::vector<pid_t> helpers() const override {
    std::vector<pid_t> all = member_.own_helpers();
    for (const auto& more : {leader_.helpers(), watch_.pids(), board_->helpers()})
      all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  void set_ended(pid_t pid, int status) override {
    // An orphan that came from a rank is no one's.
    (void)(member_.set_ended(pid, status) || leader_.set_ended(pid) || watch_.set_ended(pid) || board_->set_ended(pid));
  }

 private:
  [[nodiscard]] bool is_over() const { return board_->job() && board_->job()->phase == JobPhase::over; }
  /// Asked to end before it knows of any job.
  [[nodiscard]] bool is_unwanted() const { return asked_at_ && !board_->job(); }

  bool lead(Clock::time_point now) {
    if (!board_->leads()) {
      leader_.rest();
      return false;
    }
    is_leaders_ = true;
    const bool has_decided = leader_.turn(now);
    is_leaders_ = false;
    return has_decided;
  }

  /// Whoever should decide about it may be gone, and this node can't know.
  void require_an_answer(Clock::time_point now) const {
    const Seconds patience(options_.grace_seconds + 2 * options_.lease_seconds + 10);
    if (options_.nodes == 1 || !asked_at_ || now - *asked_at_ < patience) return;
    throw Error(Errc::busy, "asked to end, and the nodes have not settled that in time");
  }

  void turn() {
    if (!has_changed_) wait();
    reap();
    const auto now = Clock::now();
    board_->turn(now);
    if (const auto warning = board_->take_warning()) observer_.warning(*warning);
    if (const auto news = watch_.turn()) take(*news, now);
    has_changed_ = lead(now);
    if (is_over()) return;
    require_an_answer(now);
    has_changed_ |= member_.turn(now);
    if (now < next_state_) return;
    next_state_ = now + between_states;
    observer_.state(state(now));
  }

  void wait() {
    std::vector<pollfd> watched{{.fd = options_.signal_fd, .events = POLLIN, .revents = 0},
                                {.fd = options_.lifeline_fd, .events = POLLIN, .revents = 0}};
    member_.add_to(watched);
    leader_.add_to(watched);
    watch_.add_to(watched);
    board_->add_to(watched);
    if (::poll(watched.data(), watched.size(), static_cast<int>(patience().count())) < 0 && errno != EINTR)
      os::throw_errno(errno, "cannot wait");
    if (watched[0].revents != 0) take_signals();
    if (watched[1].revents != 0) is_killed_ = true;
  }

  [[nodiscard]] std::chrono::milliseconds patience() const {
    const auto deadline = member_.next_deadline();
    if (!deadline) return longest_wait;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now());
    return std::clamp(left, std::chrono::milliseconds(0), longest_wait);
  }

  void take_signals() {
    signalfd_siginfo info{};
    const ssize_t got = ::read(options_.signal_fd, &info, sizeof info);
    if (got != sizeof info) return;
    const auto signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) return;
    const bool preempts = signal == SIGTERM || signal == SIGINT ||
                          std::ranges::find(options_.preempt_signals, signal) != options_.preempt_signals.end();
    if (!preempts) {
      member_.pass_on(signal);
      return;
    }
    is_killed_ |= signal == SIGINT && std::exchange(was_interrupted_, true);
    signal_ = signal;
    if (!asked_at_) asked_at_ = Clock::now();
    member_.want_end();
  }

  void reap() {
    int status = 0;
    for (pid_t pid = ::waitpid(-1, &status, WNOHANG); pid > 0; pid = ::waitpid(-1, &status, WNOHANG))
      set_ended(pid, status);
  }

  void take(const StoreNews& news, Clock::time_point now) {
    if (news.newest != durable_) durable_at_ = now;
    durable_ = news.newest;
    if (news.newest > furthest_) {
      furthest_ = news.newest;
      member_.forgive();
    }
    leader_.take(news, now);
  }

  [[nodiscard]] RunState state(Clock::time_point now) const {
    RunState state{.ranks = member_.ranks(now), .durable_step = durable_};
    if (const auto& job = board_->job()) {
      state.attempt = job->generation;
      state.world_size = job->world_size;
      state.interval_seconds = job->interval_seconds;
    }
    const Leader::Account& account = leader_.account();
    state.restarts = account.restarts;
    state.lost_seconds = account.lost_seconds;
    state.steps_redone = account.steps_redone;
    if (durable_at_) state.durable_age_seconds = Seconds(now - *durable_at_).count();
    return state;
  }

  [[nodiscard]] RunReport report() const {
    const auto now = Clock::now();
    RunReport report{.durable_step = board_->leads() ? leader_.durable() : durable_,
                     .signal = signal_,
                     .seconds = Seconds(now - began_).count(),
                     .state = state(now)};
    if (const auto& job = board_->job()) {
      report.outcome = job->outcome.value_or(RunOutcome::finished);
      report.detail = job->why;
      report.failure = job->failure;
      report.attempt = job->generation;
      report.restarts = job->retries.restarts;
      report.is_safe = job->is_safe;
    }
    if (is_unwanted()) {
      report.outcome = RunOutcome::preempted;
      report.detail = "asked to end before any rank ran";
    }
    if (is_killed_) {
      report.outcome = RunOutcome::killed;
      report.detail = was_interrupted_ ? "interrupted twice" : "who started it is dead";
    }
    return report;
  }

  const RunOptions& options_;
  RunObserver& observer_;
  std::unique_ptr<Board> board_;
  Leader leader_;
  Member member_;
  StoreWatch watch_;
  Clock::time_point began_;
  Clock::time_point next_state_;
  bool has_changed_ = false;
  bool was_interrupted_ = false;
  bool is_killed_ = false;
  bool is_leaders_ = false;                    ///< what is thrown now
  std::optional<Clock::time_point> asked_at_;  ///< to end
  int signal_ = SIGTERM;
  std::optional<std::uint64_t> durable_;   ///< the newest now
  std::optional<std::uint64_t> furthest_;  ///< the newest there has been
  std::optional<Clock::time_point> durable_at_;
};

}  // namespace
}  // namespace run

RunReport supervise(const RunOptions& options, RunObserver& observer) {
  run::check_options(options);
  RunOptions own = options;
  if (!own.meeting.empty()) {
    own.node_name = run::node_name_of(own.node_rank);
    own.node_address = run::parse_meeting(own.meeting).host;
  }
  return run::Supervisor(own, observer).run();
}

}  // namespace ckpt
