// SPDX-License-Identifier: Apache-2.0
#include "run/rank_group.hpp"

#include "run/processes.hpp"

#include <ckpt/address.hpp>

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace ckpt::run {
namespace {

constexpr std::size_t shown_lines = 20;
/// In one turn.
constexpr int most_notices = 256;

bool is_well(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }

std::string signal_text(int signal) {
  const char* const name = ::sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{}", name);
}

}  // namespace

RankGroup::RankGroup(GroupSettings settings, Round round)
    : settings_(std::move(settings)),
      round_(std::move(round)),
      control_(round_.local_size()),
      memory_kills_(memory_kills()),
      ranks_(round_.local_size()) {
  settings_.job.control = control_.path();
  for (std::uint32_t rank = 0; rank < round_.local_size(); ++rank) start(rank);
}

void RankGroup::start(std::uint32_t local_rank) {
  Rank& rank = ranks_[local_rank];
  Start start{.command = settings_.command,
              .environment = rank_environment(settings_.job, round_, local_rank, rank.socket.name())};
  os::Fd write_end;
  if (!settings_.log_directory.empty()) {
    const std::string directory = fmt::format("{}/attempt-{}", settings_.log_directory, round_.attempt);
    rank.log = std::make_unique<RankLog>(fmt::format("{}/rank-{}.log", directory, round_.first_rank + local_rank),
                                         settings_.log_limits);
    try {
      rank.log->open();
    } catch (const Error&) {
      // A disk that is full by now is no reason to stop a training: it's tried again with the first output.
      if (settings_.job.restarts == 0) throw;
    }
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) os::throw_errno(errno, "cannot make a pipe");
    rank.output = os::Fd(ends[0]);
    write_end = os::Fd(ends[1]);
    os::set_nonblocking(rank.output, "a pipe");
    start.output = write_end.get();
  }
  rank.last_sign = Clock::now();
  if (settings_.start_limit) rank.deadline = rank.last_sign + ticks(*settings_.start_limit);
  rank.pid = rank.was = start_process(start);
}

void RankGroup::add_to(std::vector<pollfd>& watched) const {
  for (const Rank& rank : ranks_) {
    watched.push_back({.fd = rank.socket.fd(), .events = POLLIN, .revents = 0});
    if (rank.output.valid()) watched.push_back({.fd = rank.output.get(), .events = POLLIN, .revents = 0});
  }
}

std::optional<std::string> RankGroup::listen() {
  std::optional<std::string> trouble;
  for (Rank& rank : ranks_) {
    // Bounded, as its output is: one that speaks without end isn't the only one to be heard.
    for (int turn = 0; turn < most_notices; ++turn) {
      const auto notice = rank.socket.receive();
      if (!notice) break;
      take(rank, *notice);
    }
    if (!read_output(rank)) trouble = fmt::format("cannot write '{}': output is lost", rank.log->path());
  }
  return trouble;
}

void RankGroup::take(Rank& rank, const Notice& notice) {
  const auto now = Clock::now();
  if (notice.status) {
    const StatusNumbers numbers = parse_status(*notice.status);
    rank.text = *notice.status;
    if (numbers.step && *numbers.step <= max_step) rank.step = numbers.step;
    if (numbers.loss) rank.loss = numbers.loss;
  }
  rank.gives_up |= notice.gives_up;
  if (notice.alive) {
    rank.has_beaten = true;
    rank.last_sign = now;
    rank.deadline.reset();
    if (settings_.heartbeat) rank.deadline = now + ticks(*settings_.heartbeat);
  }
  // It only makes later what is looked at anyway.
  if (notice.extend && rank.deadline) rank.deadline = std::max(*rank.deadline, now + *notice.extend);
}

bool RankGroup::read_output(Rank& rank) {
  std::array<char, 65536> buffer;
  bool written = true;
  // Bounded, so that one that prints without end doesn't keep the others from being heard.
  for (int turn = 0; turn < 16 && rank.output.valid(); ++turn) {
    const ssize_t got = ::read(rank.output.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) {
      rank.output = os::Fd();
      break;
    }
    written &= rank.log->write({buffer.data(), static_cast<std::size_t>(got)});
  }
  return written;
}

bool RankGroup::set_ended(pid_t pid, int status) {
  const auto rank = std::find_if(ranks_.begin(), ranks_.end(), [&](const Rank& r) { return r.pid == pid; });
  if (rank == ranks_.end()) return false;
  rank->pid = -1;
  rank->status = status;
  rank->deadline.reset();
  const auto index = static_cast<std::uint32_t>(rank - ranks_.begin());
  control_.set_left(index);
  if (!is_well(status)) dead_.push_back(index);
  return true;
}

std::optional<std::uint32_t> RankGroup::first_dead() const {
  // Of those that are found dead together, one that was killed: the others may have ended because of it.
  const auto killed =
      std::find_if(dead_.begin(), dead_.end(), [&](std::uint32_t rank) { return WIFSIGNALED(*ranks_[rank].status); });
  if (killed != dead_.end()) return *killed;
  if (dead_.empty()) return std::nullopt;
  return dead_.front();
}

std::optional<std::uint32_t> RankGroup::most_silent(Clock::time_point now) const {
  std::optional<std::uint32_t> found;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    const Rank& looked = ranks_[rank];
    if (looked.gives_up && looked.pid > 0) return rank;
    if (!looked.deadline || now < *looked.deadline) continue;
    // All fall silent when one does, and they wait for it: who was stopped, or spoke last the longest ago, is the one.
    if (is_stopped(looked.pid)) return rank;
    if (!found || looked.last_sign < ranks_[*found].last_sign) found = rank;
  }
  if (!found) return found;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].pid > 0 && is_stopped(ranks_[rank].pid)) return rank;
  }
  return found;
}

std::optional<RunFailure> RankGroup::failure(Clock::time_point now) {
  if (const auto rank = first_dead()) {
    const int status = *ranks_[*rank].status;
    if (WIFEXITED(status)) return describe(*rank, RunCause::exit);
    const bool for_memory = WTERMSIG(status) == SIGKILL && memory_kills() > memory_kills_;
    return describe(*rank, for_memory ? RunCause::out_of_memory : RunCause::signal);
  }
  if (const auto rank = most_silent(now))
    return describe(*rank, ranks_[*rank].has_beaten ? RunCause::silence : RunCause::slow_start);
  return std::nullopt;
}

RunFailure RankGroup::describe(std::uint32_t local_rank, RunCause cause) const {
  const Rank& rank = ranks_[local_rank];
  RunFailure failure{.cause = cause,
                     .attempt = round_.attempt,
                     .rank = round_.first_rank + local_rank,
                     .local_rank = local_rank,
                     .pid = rank.was,
                     .step = step_of(local_rank),
                     .last_lines = last_lines(local_rank)};
  const int status = rank.status.value_or(0);
  if (rank.status && WIFEXITED(status)) failure.exit_status = WEXITSTATUS(status);
  if (rank.status && WIFSIGNALED(status)) failure.signal = WTERMSIG(status);
  const std::string who = fmt::format("rank {} (pid {})", failure.rank, failure.pid);
  const std::string where = failure.step ? fmt::format(" after step {}", *failure.step) : "";
  const Seconds silent = Clock::now() - rank.last_sign;
  switch (cause) {
    case RunCause::exit:
      failure.detail = fmt::format("{} ended with status {}{}", who, failure.exit_status, where);
      break;
    case RunCause::out_of_memory:
      failure.detail = fmt::format("{} was killed by the kernel, which ran out of memory{}", who, where);
      break;
    case RunCause::silence:
      failure.detail = rank.gives_up ? fmt::format("{} says that it hangs{}", who, where)
                                     : fmt::format("{} has been silent for {:.1f} s{}{}", who, silent.count(), where,
                                                   is_stopped(rank.was) ? ": it was stopped by a signal" : "");
      break;
    case RunCause::slow_start:
      failure.detail = fmt::format("{} gave no sign of life in {:.1f} s since it was started", who, silent.count());
      break;
    default: failure.detail = fmt::format("{} was killed by {}{}", who, signal_text(failure.signal), where);
  }
  return failure;
}

std::optional<Clock::time_point> RankGroup::next_deadline() const {
  std::optional<Clock::time_point> next;
  for (const Rank& rank : ranks_) {
    if (rank.deadline && (!next || *rank.deadline < *next)) next = rank.deadline;
  }
  return next;
}

bool RankGroup::has_ended() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.pid < 0; });
}

bool RankGroup::have_joined_ended() const {
  bool any = false;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!control_.has_joined(rank)) continue;
    if (ranks_[rank].pid > 0) return false;
    any = true;
  }
  return any;
}

void RankGroup::signal(int signal, std::optional<std::uint32_t> except) const {
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (rank != except) signal_one(rank, signal);
  }
}

void RankGroup::signal_one(std::uint32_t local_rank, int signal) const {
  if (ranks_[local_rank].pid > 0) signal_group(ranks_[local_rank].pid, signal);
}

std::optional<std::uint64_t> RankGroup::step_of(std::uint32_t local_rank) const {
  return std::max(ranks_[local_rank].step, control_.last_step(local_rank));
}

std::optional<std::uint64_t> RankGroup::last_step() const {
  std::optional<std::uint64_t> last;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) last = std::max(last, step_of(rank));
  return last;
}

std::vector<RunRank> RankGroup::states(Clock::time_point now) const {
  std::vector<RunRank> states;
  for (std::uint32_t i = 0; i < ranks_.size(); ++i) {
    const Rank& rank = ranks_[i];
    RunRank state{
        .rank = round_.first_rank + i, .pid = rank.pid, .step = step_of(i), .loss = rank.loss, .status = rank.text};
    if (rank.has_beaten) state.silent_seconds = Seconds(now - rank.last_sign).count();
    states.push_back(std::move(state));
  }
  return states;
}

std::vector<std::string> RankGroup::last_lines(std::uint32_t local_rank) const {
  const auto& log = ranks_[local_rank].log;
  return log ? log->last_lines(shown_lines) : std::vector<std::string>{};
}

}  // namespace ckpt::run
