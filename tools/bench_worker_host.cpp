// SPDX-License-Identifier: Apache-2.0
#include "bench_worker_host.hpp"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <ckpt/error.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <vector>

#include "cli/worker.hpp"

namespace ckpt::cli {

struct BenchWorkerHost::Request {
  enum class What { start, finish, stop } what = What::start;
  unsigned jobs = 0;
  std::array<char, PATH_MAX> store{};
  std::array<char, PATH_MAX> spool{};
};

namespace {

struct Answer {
  bool ok = true;
  std::uint64_t peak_bytes = 0;
  std::array<char, 1024> message{};
};

/// False at the end of the other side.
bool read_fully(int socket, void* to, std::size_t size) {
  for (std::size_t done = 0; done < size;) {
    const ssize_t n = ::read(socket, static_cast<char*>(to) + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<std::size_t>(n);
  }
  return true;
}

bool write_fully(int socket, const void* from, std::size_t size) {
  for (std::size_t done = 0; done < size;) {
    const ssize_t n = ::send(socket, static_cast<const char*>(from) + done, size - done, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<std::size_t>(n);
  }
  return true;
}

/// The most memory that one of them had, in bytes.
std::uint64_t wait_for_all(std::vector<pid_t>& workers) {
  std::uint64_t peak = 0;
  for (const pid_t worker : workers) {
    struct rusage usage {};
    while (::wait4(worker, nullptr, 0, &usage) < 0 && errno == EINTR) continue;
    peak = std::max(peak, static_cast<std::uint64_t>(usage.ru_maxrss) * 1024);
  }
  workers.clear();
  return peak;
}

/// If the bench dies, the workers go on until nothing is staged, as ever.
template <class Request>
[[noreturn]] void serve_requests(int socket) {
  std::vector<pid_t> workers;
  Request request;
  while (read_fully(socket, &request, sizeof request)) {
    Answer answer;
    try {
      if (request.what == Request::What::start) {
        workers.push_back(
            fork_worker({.store = request.store.data(), .spool = request.spool.data(), .jobs = request.jobs}));
      } else {
        if (request.what == Request::What::stop) {
          for (const pid_t worker : workers) (void)::kill(worker, SIGTERM);
        }
        answer.peak_bytes = wait_for_all(workers);
      }
    } catch (const std::exception& error) {
      answer.ok = false;
      (void)std::snprintf(answer.message.data(), answer.message.size(), "%s", error.what());
    }
    if (!write_fully(socket, &answer, sizeof answer)) break;
  }
  ::_exit(0);
}

void copy_path(std::array<char, PATH_MAX>& to, const std::string& path) {
  if (path.size() >= to.size()) throw Error(Errc::invalid_argument, "a path is too long: " + path, ENAMETOOLONG);
  std::copy(path.begin(), path.end(), to.begin());
}

}  // namespace

BenchWorkerHost::BenchWorkerHost() {
  std::array<int, 2> sockets{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) != 0)
    throw Error(Errc::io, "cannot make a socket", errno);
  process_ = ::fork();
  if (process_ < 0) {
    const int error = errno;
    ::close(sockets[0]);
    ::close(sockets[1]);
    throw Error(Errc::io, "cannot start a process", error);
  }
  if (process_ == 0) {
    ::close(sockets[0]);
    serve_requests<Request>(sockets[1]);
  }
  ::close(sockets[1]);
  socket_ = sockets[0];
}

BenchWorkerHost::~BenchWorkerHost() {
  ::close(socket_);
  while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) continue;
}

std::uint64_t BenchWorkerHost::ask(const Request& request) {
  const std::lock_guard lock(mutex_);
  Answer answer;
  if (!write_fully(socket_, &request, sizeof request) || !read_fully(socket_, &answer, sizeof answer))
    throw Error(Errc::io, "the process that starts workers has ended");
  if (!answer.ok) throw Error(Errc::io, answer.message.data());
  return answer.peak_bytes;
}

void BenchWorkerHost::start(const std::string& store, const std::string& spool) {
  Request request;
  request.jobs = jobs;
  copy_path(request.store, store);
  copy_path(request.spool, spool);
  (void)ask(request);
}

std::uint64_t BenchWorkerHost::finish(bool stop) {
  Request request;
  request.what = stop ? Request::What::stop : Request::What::finish;
  return ask(request);
}

}  // namespace ckpt::cli
