// SPDX-License-Identifier: Apache-2.0
// A rank's line to the supervisor that started it: it says that it's alive and how far it is, in sd_notify(3)'s
// datagrams, and takes what it's asked for from the control page. Nothing that the supervisor does or fails to do with
// a datagram stops the training: one that finds no reader, or no room, is lost.
#pragma once

#include "os/fd.hpp"
#include "run/control_page.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace ckpt::run {

/// Thread-safe. In a fork's child every call does nothing.
class RankLink {
 public:
  /// An empty name: there's no such thing. `notify_socket` is a path or, after an '@', a name in Linux' abstract space.
  /// Throws Errc::invalid_argument for another; for `control` as RankPage does.
  RankLink(const std::string& notify_socket, const std::string& control, std::uint32_t local_rank);

  /// This rank has finished `step`: says so, and that it's alive, and gives what is asked of it there. Of `status` one
  /// line of bounded length is sent. Waits while the supervisor settles what it asks for, microseconds as a rule.
  [[nodiscard]] Request step(std::uint64_t step, std::string_view status);
  void alive() const;
  /// What follows may take so long without a word.
  void extend(std::chrono::microseconds time) const;

 private:
  [[nodiscard]] bool is_here() const;
  void send(std::string_view message) const;

  const long process_;
  os::Fd socket_;
  sockaddr_un address_{};
  socklen_t address_size_ = 0;
  std::mutex mutex_;  ///< of the page: alive() doesn't wait for what step() waits for
  std::optional<RankPage> page_;
};

}  // namespace ckpt::run
