// SPDX-License-Identifier: Apache-2.0
// "read 1.2 GiB of 4.0 GiB, 30 %, 1.1 GiB/s, 3 s left": at most five times a second, or once when USR1 asks.
#pragma once

#include <ckpt/monitor.hpp>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "cli/messages.hpp"

namespace ckpt::cli {

class ProgressLine {
 public:
  enum class Mode {
    off,        ///< only when USR1 asks
    in_place,   ///< on a terminal
    each_line,  ///< asked for, but there's no terminal: lines that stay, fewer of them
  };
  ProgressLine(Messages& messages, Mode mode, std::size_t width);

  void update(const Progress& progress);

 private:
  using Clock = std::chrono::steady_clock;
  [[nodiscard]] std::string text_of(const Progress& progress, Clock::time_point now) const;

  Messages& messages_;
  Mode mode_;
  std::size_t width_;
  std::string stage_;
  Clock::time_point stage_begin_;
  std::optional<Clock::time_point> last_;
};

}  // namespace ckpt::cli
