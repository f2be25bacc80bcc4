// SPDX-License-Identifier: Apache-2.0
// What a service tells its manager: sd_notify(3)'s protocol, datagrams to the socket that NOTIFY_SOCKET names.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace ckpt::cli {

/// Says nothing where no one asked. A manager that doesn't listen is no reason to fail.
class ServiceNotice {
 public:
  /// Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID. Throws Errc::invalid_argument if one is malformed.
  ServiceNotice();

  void ready();
  void stopping();
  /// Sent when it changes.
  void status(std::string_view text);
  /// Call it often: it's sent at a third of the time after which the manager would act.
  void alive();

 private:
  using Clock = std::chrono::steady_clock;

  void send(std::string_view message) const;

  std::optional<std::string> socket_;
  std::optional<Clock::duration> watchdog_;
  Clock::time_point next_alive_ = Clock::now();
  std::string last_status_;
};

}  // namespace ckpt::cli
