// SPDX-License-Identifier: Apache-2.0
// What a supervisor listens to: a socket of datagrams in Linux' abstract space.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>

namespace unit_test {

class NotifySocket {
 public:
  NotifySocket() {
    static std::atomic<int> count = 0;
    name_ = "@ckpt-test-" + std::to_string(::getpid()) + "-" + std::to_string(++count);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name_.data() + 1, name_.size() - 1);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name_.size());
    if (fd_ < 0 || ::bind(fd_, reinterpret_cast<const sockaddr*>(&address), size) != 0)
      throw std::runtime_error("no socket to listen to");
  }
  NotifySocket(const NotifySocket&) = delete;
  NotifySocket& operator=(const NotifySocket&) = delete;
  ~NotifySocket() { ::close(fd_); }

  [[nodiscard]] const std::string& name() const { return name_; }

  /// The next datagram; nothing if none comes in time.
  [[nodiscard]] std::optional<std::string> next(int milliseconds = 10000) const {
    pollfd ready{.fd = fd_, .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, milliseconds) != 1) return std::nullopt;
    std::string text(4096, '\0');
    const ssize_t size = ::recv(fd_, text.data(), text.size(), 0);
    if (size < 0) return std::nullopt;
    text.resize(static_cast<std::size_t>(size));
    return text;
  }
  /// How many are waiting; they're gone then.
  [[nodiscard]] int drain() const {
    int count = 0;
    while (next(0)) ++count;
    return count;
  }

 private:
  int fd_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  std::string name_;
};

}  // namespace unit_test
