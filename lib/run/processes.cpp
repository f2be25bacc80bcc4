// SPDX-License-Identifier: Apache-2.0
#include "run/processes.hpp"

#include "os/fd.hpp"
#include "os/small_file.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string_view>
#include <thread>

namespace ckpt::run {
namespace {

/// As the worker of ckpt-save --detach calls itself.
constexpr std::string_view worker_name = "ckpt-worker";

struct Process {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t session = 0;
  char state = '?';
  std::string name;
};

std::optional<pid_t> pid_of(std::string_view text) {
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), pid);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return pid;
}

/// Nothing for one that has ended meanwhile.
std::optional<Process> read_process(pid_t pid) {
  const std::string text = os::read_kernel_file("/proc/" + std::to_string(pid) + "/stat");
  // PID (NAME) STATE PARENT GROUP SESSION ..., and the name may hold anything.
  const auto open = text.find('(');
  const auto close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close + 2 >= text.size()) return std::nullopt;
  Process process{.pid = pid, .name = text.substr(open + 1, close - open - 1)};
  int group = 0;
  if (std::sscanf(text.c_str() + close + 2, "%c %d %d %d", &process.state, &process.parent, &group, &process.session) !=
      4)
    return std::nullopt;
  return process;
}

std::vector<Process> read_processes() {
  std::vector<Process> processes;
  for (const std::string& name : os::list_directory("/proc").value_or(std::vector<std::string>{})) {
    if (const auto pid = pid_of(name)) {
      if (auto process = read_process(*pid)) processes.push_back(std::move(*process));
    }
  }
  return processes;
}

/// Without zombies, which only wait to be reaped.
std::vector<pid_t> running_below(pid_t root, const std::set<pid_t>& spared) {
  std::multimap<pid_t, Process> children;
  for (Process& process : read_processes()) children.emplace(process.parent, std::move(process));
  std::vector<pid_t> found;
  std::vector<pid_t> open{root};
  while (!open.empty()) {
    const pid_t parent = open.back();
    open.pop_back();
    const auto [begin, end] = children.equal_range(parent);
    for (auto child = begin; child != end; ++child) {
      const Process& process = child->second;
      if (spared.contains(process.pid) || process.name == worker_name) continue;
      open.push_back(process.pid);
      if (process.state != 'Z' && process.state != 'X') found.push_back(process.pid);
    }
  }
  return found;
}

[[noreturn]] void fail_in_child(int report) {
  const int error = errno;
  if (::write(report, &error, sizeof error) < 0) ::_exit(127);
  ::_exit(127);
}

void forget_signals() {
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

[[noreturn]] void become(const Start& start, pid_t parent, int report) {
  forget_signals();
  ::setsid();
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail_in_child(report);
  if (::getppid() != parent) ::_exit(127);
  const rlimit no_core{};
  ::setrlimit(RLIMIT_CORE, &no_core);
  const int nothing = ::open("/dev/null", O_RDONLY);
  if (nothing < 0 || ::dup2(nothing, STDIN_FILENO) < 0) fail_in_child(report);
  if (start.output >= 0 && (::dup2(start.output, STDOUT_FILENO) < 0 || ::dup2(start.output, STDERR_FILENO) < 0))
    fail_in_child(report);
  const auto arguments = pointers_to(start.command);
  auto environment = pointers_to(start.environment);
  // execvpe() looks in the PATH of this process, so that becomes the one that's given.
  environ = environment.data();
  ::execvp(arguments[0], arguments.data());
  fail_in_child(report);
}

}  // namespace

pid_t start_process(const Start& start) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) os::throw_errno(errno, "cannot make a pipe");
  os::Fd read_end(ends[0]);
  os::Fd write_end(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) os::throw_errno(errno, "cannot start a process");
  if (child == 0) become(start, parent, write_end.get());
  write_end = os::Fd();
  int error = 0;
  ssize_t got = 0;
  do {
    got = ::read(read_end.get(), &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  if (got == sizeof error) {
    ::waitpid(child, nullptr, 0);
    os::throw_errno(error, "cannot run '" + start.command.front() + "'");
  }
  return child;
}

std::vector<pid_t> kill_all_below(const std::set<pid_t>& spared, std::chrono::milliseconds patience,
                                  const std::function<void(pid_t, int)>& ended) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (true) {
    const auto left = running_below(::getpid(), spared);
    for (const pid_t pid : left) ::kill(pid, SIGKILL);
    int status = 0;
    for (pid_t pid = ::waitpid(-1, &status, WNOHANG); pid > 0; pid = ::waitpid(-1, &status, WNOHANG))
      ended(pid, status);
    if (left.empty() || std::chrono::steady_clock::now() >= deadline) return left;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

bool is_stopped(pid_t session) {
  const auto processes = read_processes();
  return std::any_of(processes.begin(), processes.end(), [&](const Process& process) {
    return process.session == session && (process.state == 'T' || process.state == 't');
  });
}

void signal_group(pid_t leader, int signal) {
  // One that hasn't become a leader yet, or whose group is gone, is spoken to itself.
  if (::kill(-leader, signal) != 0) ::kill(leader, signal);
}

unsigned long long memory_kills() {
  constexpr std::string_view name = "\noom_kill ";
  const std::string text = os::read_kernel_file("/proc/vmstat");
  const auto at = text.find(name);
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + name.size(), nullptr, 10);
}

}  // namespace ckpt::run
