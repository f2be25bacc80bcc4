// SPDX-License-Identifier: Apache-2.0
#include "run/line_channel.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

namespace ckpt::run {

using nlohmann::json;

LineChannel::LineChannel(os::Fd socket) : socket_(std::move(socket)) { os::set_nonblocking(socket_, "a socket"); }

LineChannel::~LineChannel() { close(); }

void LineChannel::close() {
  is_open_ = false;
  if (socket_.valid()) (void)::shutdown(socket_.get(), SHUT_RDWR);
  socket_ = os::Fd();
}

void LineChannel::end_sending() {
  if (is_open_) (void)::shutdown(socket_.get(), SHUT_WR);
}

void LineChannel::add_to(std::vector<pollfd>& watched) const {
  if (!is_open_) return;
  const short events = unsent_.empty() ? POLLIN : POLLIN | POLLOUT;
  watched.push_back({.fd = socket_.get(), .events = events, .revents = 0});
}

std::vector<json> LineChannel::receive() {
  std::vector<json> lines;
  std::array<char, 16384> buffer;
  // Someone who never stops talking mustn't keep the others waiting.
  for (std::size_t taken = 0; is_open_ && taken < most_bytes; taken += buffer.size()) {
    const ssize_t got = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == ENOTCONN)) break;
    if (got <= 0) {
      close();
      break;
    }
    unread_.append(buffer.data(), static_cast<std::size_t>(got));
    std::size_t begin = 0;
    for (auto end = unread_.find('\n'); end != std::string::npos && is_open_; end = unread_.find('\n', begin)) {
      json line = json::parse(unread_.begin() + static_cast<std::ptrdiff_t>(begin),
                              unread_.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
      begin = end + 1;
      if (line.is_object()) {
        lines.push_back(std::move(line));
      } else {
        close();
      }
    }
    unread_.erase(0, begin);
    if (unread_.size() > most_bytes) close();
  }
  return lines;
}

void LineChannel::send(const json& line) {
  if (!is_open_) return;
  unsent_ += line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  flush();
  if (unsent_.size() > most_bytes) close();
}

void LineChannel::flush() {
  while (is_open_ && !unsent_.empty()) {
    const ssize_t sent = ::send(socket_.get(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == ENOTCONN)) return;
    if (sent < 0) {
      // What the other side said last may still be there to be read.
      unsent_.clear();
      return;
    }
    unsent_.erase(0, static_cast<std::size_t>(sent));
  }
}

}  // namespace ckpt::run
