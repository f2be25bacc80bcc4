// SPDX-License-Identifier: Apache-2.0
// A line of JSON for each thing said: {"sign":1}, {"warning":TEXT}, {"tell":...}, and last {"result":...} or
// {"error":TEXT,"code":N,"errno":N,"hint":TEXT}.
#include "run/store_task.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <span>
#include <utility>

namespace ckpt::run {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr auto between_task_signs = std::chrono::milliseconds(100);

json describe(const Error& error) {
  return {{"error", error.what()},
          {"code", static_cast<int>(error.code())},
          {"errno", error.system_errno()},
          {"hint", error.hint()}};
}

std::string line_of(const json& line) { return line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n"; }

json outcome_of(const StoreTask::Work& work, TaskVoice& voice) {
  try {
    return {{"result", work(voice)}};
  } catch (const Error& error) {
    return describe(error);
  } catch (const std::bad_alloc&) {
    return describe(Error(Errc::io, "out of memory"));
  } catch (const std::exception& error) {
    return describe(Error(Errc::io, error.what()));
  }
}

template <class T>
std::optional<T> take_first(std::vector<T>& items) {
  if (items.empty()) return std::nullopt;
  T first = std::move(items.front());
  items.erase(items.begin());
  return first;
}

}  // namespace

void TaskVoice::put(const json& line) {
  const std::string text = line_of(line);
  // Without a supervisor there's no one to work for.
  try {
    os::write_all(pipe_, std::as_bytes(std::span(text)), "pipe");
  } catch (const Error&) {
    ::_exit(1);
  }
}

void TaskVoice::progress(const Progress&) {
  const auto now = Clock::now();
  if (now - last_sign_ < between_task_signs) return;
  last_sign_ = now;
  put({{"sign", 1}});
}

void TaskVoice::warning(std::string_view message) { put({{"warning", std::string(message)}}); }

void TaskVoice::tell(const json& message) { put({{"tell", message}}); }

bool TaskVoice::stop_requested() const {
  sigset_t waiting;
  return ::sigpending(&waiting) == 0 && ::sigismember(&waiting, SIGTERM) == 1;
}

StoreTask::StoreTask(const Work& work) : last_sign_(Clock::now()) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) os::throw_errno(errno, "cannot make a pipe");
  pipe_ = os::Fd(ends[0]);
  os::Fd write_end(ends[1]);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) os::throw_errno(errno, "cannot start a process");
  if (pid_ == 0) {
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != parent) ::_exit(1);
    (void)::prctl(PR_SET_NAME, "ckpt-store");
    TaskVoice voice(std::move(write_end));
    voice.put(outcome_of(work, voice));
    ::_exit(0);
  }
  os::set_nonblocking(pipe_, "a pipe");
}

StoreTask::~StoreTask() {
  if (pid_ > 0) ::kill(pid_, SIGKILL);
}

void StoreTask::ask_to_stop() const {
  if (pid_ > 0) ::kill(pid_, SIGTERM);
}

bool StoreTask::read() {
  std::array<char, 16384> buffer;
  while (!ended_) {
    const ssize_t got = ::read(pipe_.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return true;
    if (got <= 0) {
      ended_ = true;
      break;
    }
    last_sign_ = Clock::now();
    unread_.append(buffer.data(), static_cast<std::size_t>(got));
    for (auto end = unread_.find('\n'); end != std::string::npos; end = unread_.find('\n')) {
      take(std::string_view(unread_).substr(0, end));
      unread_.erase(0, end + 1);
    }
  }
  return false;
}

void StoreTask::take(std::string_view text) {
  json line = json::parse(text);
  if (line.contains("warning")) warnings_.push_back(line["warning"].get<std::string>());
  if (line.contains("tell")) messages_.push_back(std::move(line["tell"]));
  if (line.contains("result")) result_ = std::move(line["result"]);
  if (line.contains("error")) {
    failure_.emplace(
        Error(static_cast<Errc>(line["code"].get<int>()), line["error"].get<std::string>(), line["errno"].get<int>())
            .with_hint(line["hint"].get<std::string>()));
  }
}

std::optional<std::string> StoreTask::take_warning() { return take_first(warnings_); }

std::optional<json> StoreTask::take_message() { return take_first(messages_); }

json StoreTask::result() const {
  if (failure_) throw Error(*failure_);
  if (!result_) throw Error(Errc::io, "the process that works on the store died");
  return *result_;
}

}  // namespace ckpt::run
