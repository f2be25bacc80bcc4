// SPDX-License-Identifier: Apache-2.0
// Flags set by handlers. System calls aren't restarted after a request to end, so that a wait ends too.
#include "cli/signals.hpp"

#include <signal.h>

#include <atomic>

namespace ckpt::cli {
namespace {

std::atomic<int> end_signal{0};
std::atomic<bool> progress_wanted{false};
bool pipe_default = false;

static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

void on_end(int signal) {
  if (end_signal.exchange(signal) == 0 || signal != SIGINT) return;
  ::signal(SIGINT, SIG_DFL);
  ::raise(SIGINT);
}

void on_progress(int) { progress_wanted.store(true); }

bool is_ignored(int signal) {
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

void install(int signal, void (*handler)(int), int flags) {
  if (is_ignored(signal)) return;
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

void catch_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) install(signal, on_end, 0);
  install(SIGUSR1, on_progress, SA_RESTART);
  // A write to a broken pipe becomes an error at the place where it can be handled.
  pipe_default = !is_ignored(SIGPIPE);
  ::signal(SIGPIPE, SIG_IGN);
}

int pending_signal() { return end_signal.load(std::memory_order_relaxed); }

bool take_progress_request() {
  return progress_wanted.load(std::memory_order_relaxed) && progress_wanted.exchange(false);
}

bool dies_of_broken_pipe() { return pipe_default; }

void raise_again(int signal) {
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

}  // namespace ckpt::cli
