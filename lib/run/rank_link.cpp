// SPDX-License-Identifier: Apache-2.0
#include "run/rank_link.hpp"

#include <ckpt/error.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

namespace ckpt::run {
namespace {

/// What a table or a log has room for. The supervisor reads it from untrusted hands all the same.
constexpr std::size_t longest_told = 200;

/// One line: control characters, C1's in UTF-8 among them, become spaces.
std::string one_line(std::string_view text) {
  const auto byte_at = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  std::string line;
  std::size_t i = 0;
  for (; i < text.size() && line.size() < longest_told; ++i) {
    if (byte_at(i) == 0xc2 && byte_at(i + 1) >= 0x80 && byte_at(i + 1) < 0xa0) {
      line += ' ';
      ++i;
    } else {
      line += byte_at(i) < 0x20 || byte_at(i) == 0x7f ? ' ' : text[i];
    }
  }
  // A character that was cut isn't one.
  if (i < text.size()) {
    while (!line.empty() && (byte_at(i) & 0xc0U) == 0x80) {
      line.pop_back();
      --i;
    }
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

}  // namespace

RankLink::RankLink(const std::string& notify_socket, const std::string& control, std::uint32_t local_rank)
    : process_(::getpid()) {
  if (!notify_socket.empty()) {
    const std::size_t size = notify_socket.size();
    if (size < 2 || size >= sizeof address_.sun_path || (notify_socket.front() != '/' && notify_socket.front() != '@'))
      throw Error(Errc::invalid_argument, fmt::format("'{}' is no socket's name", notify_socket));
    address_.sun_family = AF_UNIX;
    std::memcpy(address_.sun_path, notify_socket.data(), size);
    if (address_.sun_path[0] == '@') address_.sun_path[0] = '\0';
    address_size_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + size);
    const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) os::throw_errno(errno, "cannot make a socket");
    socket_ = os::Fd(fd);
  }
  if (!control.empty()) page_.emplace(control, local_rank);
}

Request RankLink::step(std::uint64_t step, std::string_view status) {
  if (!is_here()) return Request::none;
  const std::string line = one_line(status);
  send(fmt::format("WATCHDOG=1\nSTATUS=step {}{}{}", step, line.empty() ? "" : " ", line));
  const std::lock_guard lock(mutex_);
  return page_ ? page_->finish(step) : Request::none;
}

void RankLink::alive() const { send("WATCHDOG=1"); }

void RankLink::extend(std::chrono::microseconds time) const {
  send(fmt::format("EXTEND_TIMEOUT_USEC={}", time.count()));
}

bool RankLink::is_here() const { return process_ == ::getpid(); }

void RankLink::send(std::string_view message) const {
  if (!socket_.valid() || !is_here()) return;
  // A supervisor that doesn't listen, or not now, is no reason to fail or to wait.
  (void)::sendto(socket_.get(), message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                 reinterpret_cast<const sockaddr*>(&address_), address_size_);
}

}  // namespace ckpt::run
