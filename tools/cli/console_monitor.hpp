// SPDX-License-Identifier: Apache-2.0
// The library's Monitor on a console: progress line, messages, and a stop when a signal asked for it.
#pragma once

#include <ckpt/monitor.hpp>

#include "cli/messages.hpp"
#include "cli/progress_line.hpp"
#include "cli/signals.hpp"

namespace ckpt::cli {

class ConsoleMonitor final : public Monitor {
 public:
  ConsoleMonitor(Messages& messages, ProgressLine line) : messages_(messages), line_(std::move(line)) {}

  void progress(const Progress& progress) override { line_.update(progress); }
  void warning(std::string_view message) override { messages_.warning(message); }
  void note(std::string_view message) override { messages_.note(message); }
  [[nodiscard]] bool stop_requested() const override { return pending_signal() != 0; }

 private:
  Messages& messages_;
  ProgressLine line_;
};

}  // namespace ckpt::cli
