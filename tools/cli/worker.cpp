// SPDX-License-Identifier: Apache-2.0
#include "cli/worker.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <ckpt/error.hpp>
#include <ckpt/serve.hpp>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "cli/quantities.hpp"
#include "cli/signals.hpp"

namespace ckpt::cli {
namespace {

constexpr off_t longest_log = 1 << 20;

/// Paths as they are from anywhere.
std::string real_path(const std::string& path) {
  std::array<char, PATH_MAX> resolved{};
  if (::realpath(path.c_str(), resolved.data()) == nullptr) {
    const int error = errno;
    throw Error(Errc::io, fmt::format("cannot find '{}': {}", path, std::strerror(error)), error);
  }
  return resolved.data();
}

/// To the standard error, which is the log by then.
class WorkerObserver final : public ServeObserver {
 public:
  void warning(std::string_view message) override { say(message); }
  void served(const ServedSave& save) override {
    if (save.reason.empty()) return;
    say(fmt::format("step {} rank {}: {}{}: {}", save.step, save.rank, to_string(save.state),
                    save.will_retry ? ", to be tried again" : "", save.reason));
  }
  [[nodiscard]] bool stop_requested() const override { return pending_signal() != 0; }

  static void say(std::string_view message) {
    fmt::print(stderr, "{} ckpt-worker: {}\n", rfc3339_utc(std::time(nullptr)), message);
    std::fflush(stderr);
  }
};

/// False if it can't be opened.
bool open_as(int descriptor, const char* path, int flags) {
  const int fd = ::open(path, flags, 0666);
  if (fd < 0) return false;
  if (fd == descriptor) return true;
  const bool done = ::dup2(fd, descriptor) == descriptor;
  ::close(fd);
  return done;
}

void let_go_of_descriptors(const std::string& log) {
  if (::close_range(3, ~0U, 0) != 0) {
    for (int fd = 3; fd < 65536; ++fd) ::close(fd);
  }
  (void)open_as(STDIN_FILENO, "/dev/null", O_RDONLY);
  (void)open_as(STDOUT_FILENO, "/dev/null", O_WRONLY);
  struct stat status {};
  const bool too_long = ::stat(log.c_str(), &status) == 0 && status.st_size > longest_log;
  // Without a log its words are lost; what became of each save is in the spool all the same.
  if (!open_as(STDERR_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_APPEND | (too_long ? O_TRUNC : 0)))
    (void)open_as(STDERR_FILENO, "/dev/null", O_WRONLY);
}

[[noreturn]] void work(const ServeOptions& options) {
  (void)::setsid();
  (void)::prctl(PR_SET_NAME, "ckpt-worker");
  let_go_of_descriptors(options.spools.front() + "/worker.log");
  if (::chdir("/") != 0) WorkerObserver::say("cannot change to /");
  try {
    WorkerObserver observer;
    serve(options, observer);
  } catch (const std::exception& error) {
    WorkerObserver::say(error.what());
    ::_exit(2);
  }
  ::_exit(0);
}

ServeOptions options_of(const WorkerPlace& place) {
  ServeOptions options;
  options.store = real_path(place.store);
  options.spools = {real_path(place.spool)};
  options.only_these_spools = true;
  options.until_idle = true;
  options.give_way = true;
  options.jobs = place.jobs;
  return options;
}

[[noreturn]] void cannot_start() {
  const int error = errno;
  throw Error(Errc::io, fmt::format("cannot start a worker: {}", std::strerror(error)), error);
}

}  // namespace

pid_t fork_worker(const WorkerPlace& place) {
  const ServeOptions options = options_of(place);
  const pid_t child = ::fork();
  if (child < 0) cannot_start();
  if (child == 0) work(options);
  return child;
}

void start_worker(const WorkerPlace& place) {
  const ServeOptions options = options_of(place);
  const pid_t child = ::fork();
  if (child < 0) cannot_start();
  if (child == 0) {
    // Once more, so that the worker is no one's child to wait for.
    const pid_t worker = ::fork();
    if (worker == 0) work(options);
    ::_exit(worker < 0 ? 1 : 0);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) throw Error(Errc::io, "cannot start a worker");
}

}  // namespace ckpt::cli
