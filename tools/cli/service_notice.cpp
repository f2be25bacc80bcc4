// SPDX-License-Identifier: Apache-2.0
#include "cli/service_notice.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <ckpt/error.hpp>

#include <cstddef>
#include <cstring>

#include "cli/environment.hpp"

namespace ckpt::cli {

ServiceNotice::ServiceNotice() : socket_(environment_text("NOTIFY_SOCKET")) {
  // A path, or a name in Linux' abstract space.
  if (socket_ &&
      (socket_->size() >= sizeof(sockaddr_un::sun_path) || (socket_->front() != '/' && socket_->front() != '@')))
    throw Error(Errc::invalid_argument, fmt::format("NOTIFY_SOCKET is '{}', which is no socket's name", *socket_));
  const auto process = environment_number("WATCHDOG_PID", 1, INT32_MAX);
  const auto microseconds = environment_number("WATCHDOG_USEC", 1, UINT64_MAX / 2);
  if (microseconds &&
      process.value_or(static_cast<std::uint64_t>(::getpid())) == static_cast<std::uint64_t>(::getpid()))
    watchdog_ = std::chrono::microseconds(*microseconds);
}

void ServiceNotice::ready() { send("READY=1"); }

void ServiceNotice::stopping() { send("STOPPING=1"); }

void ServiceNotice::status(std::string_view text) {
  if (text == last_status_) return;
  last_status_ = text;
  send(fmt::format("STATUS={}", text));
}

void ServiceNotice::alive() {
  if (!watchdog_ || Clock::now() < next_alive_) return;
  next_alive_ = Clock::now() + *watchdog_ / 3;
  send("WATCHDOG=1");
}

void ServiceNotice::send(std::string_view message) const {
  if (!socket_) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket_->data(), socket_->size());
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return;
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_->size());
  (void)::sendto(fd, message.data(), message.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address), size);
  ::close(fd);
}

}  // namespace ckpt::cli
