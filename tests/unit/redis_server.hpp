// SPDX-License-Identifier: Apache-2.0
// A Redis server of a test's own, on loopback, with an append-only file in a scratch directory; it ends with the
// object.
#pragma once

#include "scratch.hpp"
#include "doors/redis_connection.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <chrono>
#include <csignal>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace redis_test {

class RedisServer {
 public:
  explicit RedisServer(std::vector<std::string> options = {}) : options_(std::move(options)), port_(free_port()) {
    start();
  }
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;
  ~RedisServer() { kill(); }

  void start() {
    std::vector<std::string> arguments = {
        "redis-server", "--port",    std::to_string(port_), "--bind", "127.0.0.1",     "--dir",  directory_.path(),
        "--save",       "",          "--appendonly",        "yes",    "--appendfsync", "always", "--daemonize",
        "no",           "--logfile", directory_ / "log"};
    arguments.insert(arguments.end(), options_.begin(), options_.end());
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    std::string path = "PATH=/usr/local/bin:/usr/bin:/bin";
    std::vector<char*> environment = {path.data(), nullptr};
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("cannot fork");
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() == parent) ::execvpe(argv[0], argv.data(), environment.data());
      ::_exit(127);
    }
    wait_until_ready();
  }

  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

  /// It's there and says nothing.
  void hang() const { ::kill(pid_, SIGSTOP); }

  void restart() {
    kill();
    start();
  }

  [[nodiscard]] ckpt::doors::RedisAddress address(const std::string& key = "q") const {
    return ckpt::doors::parse_redis_address("redis://127.0.0.1:" + std::to_string(port_) + "/0?key=" + key);
  }

  /// On a connection of its own.
  ckpt::doors::RedisValue call(const std::vector<std::string_view>& arguments) const {
    ckpt::doors::RedisConnection connection(address(), {});
    return connection.call(arguments);
  }

  [[nodiscard]] std::int64_t keys() const { return call({"DBSIZE"}).number(); }

 private:
  static std::uint16_t free_port() {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in where {};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof where;
    const bool bound = ::bind(fd, reinterpret_cast<struct sockaddr*>(&where), size) == 0 &&
                       ::getsockname(fd, reinterpret_cast<struct sockaddr*>(&where), &size) == 0;
    ::close(fd);
    if (!bound) throw std::runtime_error("no free port");
    return ntohs(where.sin_port);
  }

  void wait_until_ready() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (true) {
      try {
        (void)call({"PING"});
        return;
      } catch (const ckpt::Error& error) {
        if (::waitpid(pid_, nullptr, WNOHANG) == pid_) {
          pid_ = -1;
          throw std::runtime_error("redis-server ended");
        }
        if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error(error.what());
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  unit_test::Scratch directory_;
  std::vector<std::string> options_;
  std::uint16_t port_;
  pid_t pid_ = -1;
};

}  // namespace redis_test
