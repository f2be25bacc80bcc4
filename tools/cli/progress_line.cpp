// SPDX-License-Identifier: Apache-2.0
// The rate is that of the stage so far; a new stage starts a new clock.
#include "cli/progress_line.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/quantities.hpp"
#include "cli/signals.hpp"
#include "cli/terminal.hpp"

namespace ckpt::cli {
namespace {

using namespace std::chrono_literals;

std::string eraser(std::size_t shown) {
  if (!is_dumb_terminal()) return "\r\033[K";
  return '\r' + std::string(shown, ' ') + '\r';
}

}  // namespace

ProgressLine::ProgressLine(Messages& messages, Mode mode, std::size_t width)
    : messages_(messages), mode_(mode), width_(width) {}

void ProgressLine::update(const Progress& progress) {
  const bool asked = take_progress_request();
  if (mode_ == Mode::off && !asked && stage_ == progress.stage) return;
  const Clock::time_point now = Clock::now();
  if (stage_ != progress.stage) {
    stage_ = progress.stage;
    stage_begin_ = now;
    if (!last_) last_ = now;
  }
  if (asked) messages_.progress(text_of(progress, now));
  const auto pause = mode_ == Mode::each_line ? 5s : 200ms;
  if (mode_ == Mode::off || now - *last_ < pause) return;
  last_ = now;
  std::string text = text_of(progress, now);
  if (mode_ == Mode::each_line) {
    messages_.progress(text);
    return;
  }
  // The last column stays free: some terminals wrap when it's written.
  text.resize(std::min(text.size(), std::max<std::size_t>(width_, 2) - 1));
  messages_.transient(text, eraser(text.size()));
}

std::string ProgressLine::text_of(const Progress& progress, Clock::time_point now) const {
  const double seconds = std::chrono::duration<double>(now - stage_begin_).count();
  const double rate = seconds > 0 ? static_cast<double>(progress.done) / seconds : 0;
  std::string text = fmt::format("{} {}", progress.stage, human_bytes(progress.done));
  if (progress.total > 0) {
    const double share = static_cast<double>(progress.done) / static_cast<double>(progress.total);
    text += fmt::format(" of {}, {:.0f} %", human_bytes(progress.total), 100 * std::min(share, 1.0));
  }
  if (rate >= 1) text += fmt::format(", {}/s", human_bytes(static_cast<std::uint64_t>(rate)));
  if (rate >= 1 && progress.total > progress.done) {
    text += fmt::format(", {} left", human_duration(static_cast<double>(progress.total - progress.done) / rate));
  }
  return text;
}

}  // namespace ckpt::cli
