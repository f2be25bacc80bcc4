// SPDX-License-Identifier: Apache-2.0
// Where one rank's notices arrive: a socket without a place in the file system, so that nothing is left behind.
#pragma once

#include "os/fd.hpp"
#include "run/notice.hpp"

#include <optional>
#include <string>

namespace ckpt::run {

class NotifySocket {
 public:
  NotifySocket();

  /// What NOTIFY_SOCKET is set to.
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] int fd() const { return socket_.get(); }
  /// The next notice, without waiting. What other users send is dropped.
  [[nodiscard]] std::optional<Notice> receive();

 private:
  os::Fd socket_;
  std::string name_;
};

}  // namespace ckpt::run
