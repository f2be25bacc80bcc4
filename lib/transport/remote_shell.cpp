// SPDX-License-Identifier: Apache-2.0
#include "transport/remote_shell.hpp"

#include <ckpt/error.hpp>

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <chrono>
#include <thread>

extern char** environ;  // NOLINT: the child's environment is this one's

namespace ckpt::transport {
namespace {

constexpr auto shell_patience = std::chrono::seconds(5);

struct Pipe {
  os::Fd read;
  os::Fd write;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) os::throw_errno(errno, "cannot make a pipe");
  return {.read = os::Fd(ends[0]), .write = os::Fd(ends[1])};
}

}  // namespace

bool is_remote(const std::string& text) {
  const std::size_t colon = text.find(':');
  return colon != std::string::npos && text.find('/') > colon;
}

RemotePath parse_remote(const std::string& text) {
  const std::size_t colon = text.find(':');
  RemotePath remote{.host = text.substr(0, colon), .path = text.substr(colon + 1)};
  const bool is_option = remote.host.starts_with('-');
  if (remote.host.empty() || remote.path.empty() || is_option || remote.host.ends_with('@'))
    throw Error(Errc::invalid_argument, "'" + text + "' is not [USER@]HOST:STORE");
  return remote;
}

std::string shell_word(const std::string& text) {
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'')
      word += "'\\''";
    else
      word += c;
  }
  return word + "'";
}

ChildProcess::ChildProcess(const std::vector<std::string>& command, ErrorStream errors) {
  Pipe in = make_pipe();
  Pipe out = make_pipe();
  Pipe err;
  if (errors == ErrorStream::own) err = make_pipe();
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions{};
  posix_spawnattr_t attributes{};
  int error = ::posix_spawn_file_actions_init(&actions);
  if (error == 0) error = ::posix_spawn_file_actions_adddup2(&actions, in.read.get(), STDIN_FILENO);
  if (error == 0) error = ::posix_spawn_file_actions_adddup2(&actions, out.write.get(), STDOUT_FILENO);
  if (error == 0 && errors == ErrorStream::own)
    error = ::posix_spawn_file_actions_adddup2(&actions, err.write.get(), STDERR_FILENO);
  if (error == 0) error = ::posix_spawnattr_init(&attributes);
  // What this process ignores or blocks is no business of the child's.
  sigset_t none, defaults;
  ::sigemptyset(&none);
  ::sigemptyset(&defaults);
  ::sigaddset(&defaults, SIGPIPE);
  if (error == 0) error = ::posix_spawnattr_setsigmask(&attributes, &none);
  if (error == 0) error = ::posix_spawnattr_setsigdefault(&attributes, &defaults);
  if (error == 0) error = ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  if (error == 0) error = ::posix_spawnp(&pid_, arguments.front(), &actions, &attributes, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) os::throw_errno(error, "cannot start '" + command.front() + "'");
  output_ = std::move(out.read);
  input_ = std::move(in.write);
  errors_ = std::move(err.read);
}

std::optional<int> ChildProcess::ended() {
  int status = 0;
  if (!status_ && ::waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
  return status_;
}

void ChildProcess::terminate() {
  if (!ended()) ::kill(pid_, SIGTERM);
}

ChildProcess::~ChildProcess() {
  output_ = {};
  input_ = {};
  errors_ = {};
  const auto deadline = std::chrono::steady_clock::now() + shell_patience;
  while (!ended()) {
    if (std::chrono::steady_clock::now() > deadline) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace ckpt::transport
