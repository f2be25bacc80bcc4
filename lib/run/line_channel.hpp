// SPDX-License-Identifier: Apache-2.0
// Lines of JSON over a socket, without ever waiting.
#pragma once

#include "os/fd.hpp"

#include <poll.h>
#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace ckpt::run {

class LineChannel {
 public:
  /// The longest line, and the most that waits to be sent.
  static constexpr std::size_t most_bytes = std::size_t{1} << 20U;

  /// Takes a stream socket that is connected, or about to be.
  explicit LineChannel(os::Fd socket);
  LineChannel(LineChannel&&) noexcept = default;
  LineChannel& operator=(LineChannel&&) noexcept = default;
  /// Ends the connection, also where a forked child still holds the socket.
  ~LineChannel();

  void add_to(std::vector<pollfd>& watched) const;
  [[nodiscard]] bool is_open() const { return is_open_; }
  /// Nothing waits to be sent.
  [[nodiscard]] bool is_drained() const { return unsent_.empty(); }

  /// The lines that have come. Then is_open() says whether more can: a connection that has ended or failed, a line that
  /// is too long and one that isn't JSON close it.
  [[nodiscard]] std::vector<nlohmann::json> receive();
  void send(const nlohmann::json& line);
  void flush();
  /// Nothing more comes from here; the other side may still have something to say.
  void end_sending();
  void close();

 private:
  os::Fd socket_;
  bool is_open_ = true;
  std::string unread_;
  std::string unsent_;
};

}  // namespace ckpt::run
