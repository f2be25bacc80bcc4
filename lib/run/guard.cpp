// SPDX-License-Identifier: Apache-2.0
// Two processes, each of which ends what the other leaves behind: this one only passes signals on and waits; the child
// is the parent of all ranks. A pipe tells the child of this one's death. Orphans fall to the child (and after its
// death to this one), however they were started.
#include <ckpt/run.hpp>

#include "os/fd.hpp"
#include "run/processes.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>

namespace ckpt {
namespace {

constexpr std::chrono::seconds kill_patience(10);

sigset_t set_of(const std::vector<int>& signals) {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGCHLD);
  for (const int signal : signals) ::sigaddset(&set, signal);
  return set;
}

void take_default(int signal) {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  if (::sigaction(signal, &action, nullptr) != 0) os::throw_errno(errno, "cannot set what a signal does");
}

void adopt_orphans() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) os::throw_errno(errno, "cannot become the parent of orphans");
}

[[noreturn]] void die_of(int signal) {
  ::signal(signal, SIG_DFL);
  sigset_t one;
  ::sigemptyset(&one);
  ::sigaddset(&one, signal);
  ::sigprocmask(SIG_UNBLOCK, &one, nullptr);
  ::raise(signal);
  ::_exit(128 + signal);
}

[[noreturn]] void work_in_child(const sigset_t& signals, os::Fd lifeline,
                                const std::function<GuardedEnd(const Guarded&)>& work) {
  // A terminal's interrupt reaches the parent alone, which passes it on: once.
  (void)::setpgid(0, 0);
  adopt_orphans();
  // Who kills by name means this one's parent, and that is cleaned up after only if this one isn't killed as well.
  (void)::prctl(PR_SET_NAME, "ckpt-ranks");
  // In a group of its own it's in the background, and `stty tostop` would stop it at its first message.
  ::signal(SIGTTOU, SIG_IGN);
  const os::Fd signal_fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signal_fd.valid()) os::throw_errno(errno, "cannot watch signals");
  const GuardedEnd end = work({.signal_fd = signal_fd.get(), .lifeline_fd = lifeline.get()});
  if (end.signal != 0) die_of(end.signal);
  ::_exit(end.status);
}

GuardedEnd end_of(int status) {
  if (WIFSIGNALED(status)) return {.signal = WTERMSIG(status)};
  return {.status = WEXITSTATUS(status)};
}

GuardedEnd wait_for(pid_t child, const sigset_t& signals) {
  while (true) {
    siginfo_t info{};
    if (::sigwaitinfo(&signals, &info) < 0 && errno != EINTR) os::throw_errno(errno, "cannot wait for signals");
    if (info.si_signo != SIGCHLD && info.si_signo != 0) ::kill(child, info.si_signo);
    int status = 0;
    for (pid_t pid = ::waitpid(-1, &status, WNOHANG); pid > 0; pid = ::waitpid(-1, &status, WNOHANG)) {
      if (pid == child) return end_of(status);
    }
  }
}

}  // namespace

GuardedEnd guard(const std::vector<int>& signals, const std::function<GuardedEnd(const Guarded&)>& work) {
  const sigset_t set = set_of(signals);
  if (::sigprocmask(SIG_BLOCK, &set, nullptr) != 0) os::throw_errno(errno, "cannot block signals");
  // Inherited as ignored, the kernel would reap children itself and tell of none.
  take_default(SIGCHLD);
  adopt_orphans();
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) os::throw_errno(errno, "cannot make a pipe");
  os::Fd lifeline(ends[0]);
  os::Fd life(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) os::throw_errno(errno, "cannot start a process");
  if (child == 0) {
    life = os::Fd();
    try {
      work_in_child(set, std::move(lifeline), work);
    } catch (...) {
      ::_exit(2);
    }
  }
  const GuardedEnd end = wait_for(child, set);
  // A child that ended by itself has left workers of ckpt-save --detach at most, and they are left.
  if (end.signal != 0) (void)run::kill_all_below({}, kill_patience, [](pid_t, int) {});
  return end;
}

}  // namespace ckpt
