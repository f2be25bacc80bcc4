// SPDX-License-Identifier: Apache-2.0
// The options every tool takes. Flag, then environment, then default.
#include "cli/program.hpp"

#include <fmt/format.h>
#include <ckpt/version.hpp>

#include <algorithm>
#include <array>
#include <utility>

#include "cli/environment.hpp"

namespace ckpt::cli {
namespace {

template <class T, std::size_t N>
using Choices = std::array<std::pair<std::string_view, T>, N>;

constexpr Choices<Format, 3> formats = {{{"human", Format::human}, {"tsv", Format::tsv}, {"json", Format::json}}};
constexpr Choices<ColorMode, 3> color_modes = {
    {{"auto", ColorMode::automatic}, {"always", ColorMode::always}, {"never", ColorMode::never}}};

template <class T, std::size_t N>
T choose(const Choices<T, N>& choices, std::string_view text) {
  std::string names;
  for (const auto& [name, value] : choices) {
    if (name == text) return value;
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  throw Error(Errc::invalid_argument, fmt::format("'{}' is none of {}", text, names));
}

template <class T, std::size_t N>
std::string name_in(const Choices<T, N>& choices, T wanted) {
  for (const auto& [name, value] : choices) {
    if (value == wanted) return std::string(name);
  }
  return {};
}

constexpr unsigned most_jobs = 4096;

}  // namespace

Program::Program(ToolInfo info, std::vector<std::string> arguments)
    : info_(std::move(info)), arguments_(std::move(arguments)), messages_(info_.name) {}

void Program::add_jobs_option() {
  line_.option(
      "-j,--jobs", "N", "worker threads (default: CKPT_JOBS, else one a core)",
      [this](const std::string& text) { jobs_ = static_cast<unsigned>(parse_number(text, 1, most_jobs)); },
      [this] { return jobs_ == 0 ? std::string("one a core") : std::to_string(jobs_); });
}

void Program::add_metrics_option() {
  line_.option("--metrics-file", "FILE.prom", "write results for a Prometheus textfile collector", metrics_file_);
}

void Program::add_common_options() {
  line_.section("Common options");
  line_.option(
      "--format", "FORMAT", "report as human, tsv or json, see ckpt-output(5)",
      [this](const std::string& text) { format_ = choose(formats, text); },
      [this] { return name_in(formats, format_); });
  line_.flag("--json", "the same as --format=json", [this] { format_ = Format::json; }, {});
  line_.flag("-0,--null", "NUL ends records, in and out; nothing is escaped", null_);
  line_.flag("-q,--quiet", "no warnings, hints and progress", quiet_);
  line_.flag("-v,--verbose", "say more; first the settings in effect", [this] { ++verbose_; }, {});
  line_.option(
      "--color", "WHEN", "auto, always or never",
      [this](const std::string& text) { color_ = choose(color_modes, text); },
      [this] { return name_in(color_modes, color_); });
  line_.flag(progress_names_, "show progress also without a terminal", [this] { progress_ = true; }, {});
  line_.flag("--no-progress", "never show progress", [this] { progress_ = false; }, {});
  line_.flag("--log-json", "messages as JSON lines", log_json_);
  line_.flag("-h,--help", "print this help", [this] { help_ = true; }, {});
  line_.flag("-V,--version", "print the version", [this] { version_ = true; }, {});
}

void Program::start_messages() {
  messages_.configure({quiet_, verbose_ > 0 && !quiet_, log_json_, wants_color(2, color_)});
  using Mode = ProgressLine::Mode;
  Mode mode = Mode::off;
  if (is_terminal(2) && progress_.value_or(!quiet_)) mode = log_json_ ? Mode::each_line : Mode::in_place;
  if (!is_terminal(2) && progress_.value_or(false)) mode = Mode::each_line;
  const std::size_t width = mode == Mode::in_place ? terminal_width(2) : 80;
  monitor_ = std::make_unique<ConsoleMonitor>(messages_, ProgressLine(messages_, mode, width));
}

std::optional<std::vector<std::string>> Program::parse() {
  add_common_options();
  bool has_jobs = false;
  for (const OptionSpec& spec : line_.options()) has_jobs = has_jobs || spec.name == "jobs";

  std::vector<std::string> operands;
  try {
    operands = line_.parse(arguments_);
  } catch (const Error& error) {
    const bool json = std::ranges::find(arguments_, "--log-json") != arguments_.end();
    messages_.configure({.quiet = quiet_, .json = json});
    throw usage_error(*this, error.what());
  }
  if (help_) {
    output_.write(help_page(info_, line_));
    return std::nullopt;
  }
  if (version_) {
    output_.write(fmt::format("{} {} (store format {})\n", info_.name, version(), format_version()));
    return std::nullopt;
  }
  if (has_jobs && jobs_ == 0) {
    jobs_ = static_cast<unsigned>(environment_number("CKPT_JOBS", 1, most_jobs).value_or(0));
  }
  start_messages();
  if (messages_.settings().verbose) messages_.note("settings: " + line_.settings());
  return operands;
}

Error usage_error(const Program& program, const std::string& message) {
  return Error(Errc::invalid_argument, message).with_hint(fmt::format("'{} --help' lists the options", program.name()));
}

const std::string& only_operand(const Program& program, const std::vector<std::string>& operands,
                                std::string_view what) {
  if (operands.empty()) throw usage_error(program, fmt::format("no {} given", what));
  if (operands.size() > 1) throw usage_error(program, fmt::format("operand '{}' is one too many", operands[1]));
  return operands.front();
}

}  // namespace ckpt::cli
