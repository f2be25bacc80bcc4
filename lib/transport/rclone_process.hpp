// SPDX-License-Identifier: Apache-2.0
// One run of rclone. What it prints is bounded, how long it may be silent too, and its failure becomes an Error that
// says what the caller can do, with rclone's last word.
#pragma once

#include "core/bytes.hpp"
#include "os/fd.hpp"
#include "transport/remote_shell.hpp"

#include <ckpt/monitor.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt::transport {

struct RcloneLimits {
  std::chrono::milliseconds patience;  ///< how long a connection may be idle
  const Monitor& monitor;              ///< whose wish to stop ends a wait
};

/// rclone's own exit status and words as an error; `what` says what it was to do.
[[nodiscard]] Error rclone_error(int wait_status, std::string_view last_line, const std::string& what);

/// Not thread-safe. The destructor ends what hasn't ended.
class RcloneProcess {
 public:
  /// `operands` are what the command is about: none of them is taken for an option. `bytes` are how many the remote may
  /// have to work through in silence. Throws unsupported if rclone isn't installed.
  RcloneProcess(const std::vector<std::string>& command, const std::vector<std::string>& operands,
                const RcloneLimits& limits, std::uint64_t bytes = 0);
  RcloneProcess(const RcloneProcess&) = delete;
  RcloneProcess& operator=(const RcloneProcess&) = delete;
  ~RcloneProcess();

  /// Fills `into`; fewer bytes mean that there are no more.
  [[nodiscard]] std::size_t read(std::span<std::byte> into);
  /// Each line that it prints, to the end. Throws malformed for one that's longer than any name, or more than `most`.
  void read_lines(std::uint64_t most, const std::function<void(std::string_view)>& take);
  /// Throws the error that it ends with if it takes no more.
  void write(ByteView bytes);
  /// Nothing more will be written.
  void end_input() { input_ = {}; }
  /// Waits for its end. Throws the error that it ends with.
  void finish();

 private:
  /// Until the descriptor is ready; collects its words meanwhile. With -1 until these end.
  void wait_for(int fd, short events);
  void collect_errors();
  [[nodiscard]] std::string last_line() const;

  std::string what_;
  const Monitor& monitor_;
  std::chrono::milliseconds patience_;
  ChildProcess child_;
  os::Fd input_;
  os::Fd output_;
  os::Fd errors_;
  std::string words_;  ///< the end of its standard error
  bool finished_ = false;
};

}  // namespace ckpt::transport
