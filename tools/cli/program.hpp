// SPDX-License-Identifier: Apache-2.0
// The frame of every tool: the options all share, messages, report, monitor, and the way from an exception or a
// signal to an exit status. A tool declares its own options, calls parse(), makes one library call and reports.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command_line.hpp"
#include "cli/console_monitor.hpp"
#include "cli/exit_status.hpp"
#include "cli/help_page.hpp"
#include "cli/messages.hpp"
#include "cli/report.hpp"
#include "cli/standard_output.hpp"
#include "cli/terminal.hpp"

namespace ckpt::cli {

class Program {
 public:
  Program(ToolInfo info, std::vector<std::string> arguments);

  [[nodiscard]] CommandLine& line() { return line_; }
  /// Declares -j; its default is CKPT_JOBS, else 0 (the library's own).
  void add_jobs_option();
  /// Declares --metrics-file.
  void add_metrics_option();

  /// Gives --progress a letter too.
  void add_progress_letter(char letter) { progress_names_ = std::string("-") + letter + ",--progress"; }

  /// Adds the common options, parses, and gives back the operands; nothing after --help and --version.
  [[nodiscard]] std::optional<std::vector<std::string>> parse();

  // Valid after parse().
  [[nodiscard]] unsigned jobs() const { return jobs_; }
  [[nodiscard]] const std::optional<std::string>& metrics_file() const { return metrics_file_; }
  [[nodiscard]] char record_end() const { return null_ ? '\0' : '\n'; }
  [[nodiscard]] Format format() const { return format_; }
  [[nodiscard]] bool colors_output() const { return wants_color(1, color_); }
  [[nodiscard]] Report report(std::string_view schema) { return {output_, format_, null_, schema}; }
  [[nodiscard]] ConsoleMonitor& monitor() { return *monitor_; }

  [[nodiscard]] Messages& messages() { return messages_; }
  [[nodiscard]] StandardOutput& output() { return output_; }
  [[nodiscard]] std::string_view name() const { return info_.name; }

 private:
  void add_common_options();
  void start_messages();

  ToolInfo info_;
  std::vector<std::string> arguments_;
  CommandLine line_;
  Messages messages_;
  StandardOutput output_;
  std::unique_ptr<ConsoleMonitor> monitor_;

  bool help_ = false;
  bool version_ = false;
  bool quiet_ = false;
  unsigned verbose_ = 0;
  bool null_ = false;
  bool log_json_ = false;
  std::optional<bool> progress_;
  std::string progress_names_ = "--progress";
  Format format_ = Format::human;
  ColorMode color_ = ColorMode::automatic;
  unsigned jobs_ = 0;
  std::optional<std::string> metrics_file_;
};

/// A wrong command line; its hint points to --help.
[[nodiscard]] Error usage_error(const Program& program, const std::string& message);

/// The operand of a tool that takes just one; `what` names it in the message if it's missing.
[[nodiscard]] const std::string& only_operand(const Program& program, const std::vector<std::string>& operands,
                                              std::string_view what);

/// The body of main(). `body` gives the exit status.
[[nodiscard]] int run(ToolInfo info, int argc, char** argv, int (*body)(Program&));

}  // namespace ckpt::cli
