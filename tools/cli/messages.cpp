// SPDX-License-Identifier: Apache-2.0
// One write a line, so that the lines of several processes don't mix.
#include "cli/messages.hpp"

#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <utility>

#include "cli/quantities.hpp"
#include "cli/record.hpp"
#include "cli/text_escape.hpp"

namespace ckpt::cli {
namespace {

void write_to_stderr(std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = ::write(STDERR_FILENO, text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(wrote));
  }
}

std::string_view color_of(std::string_view level) {
  if (level == "error") return "\033[31m";
  if (level == "warning") return "\033[33m";
  return "\033[36m";
}

}  // namespace

void Messages::erase_locked() {
  if (!erase_.empty()) write_to_stderr(std::exchange(erase_, {}));
}

void Messages::erase_transient() {
  const std::lock_guard lock(mutex_);
  erase_locked();
}

void Messages::transient(std::string_view text, std::string erase) {
  const std::lock_guard lock(mutex_);
  write_to_stderr(erase_ + std::string(text));
  erase_ = std::move(erase);
}

void Messages::put(std::string_view level, std::string_view label, std::string_view text,
                   const std::vector<Field>& fields) {
  std::string line;
  if (settings_.json) {
    Record record{level, {{"time", rfc3339_utc(std::time(nullptr))}, {"tool", tool_}, {"message", std::string(text)}}};
    record.fields.insert(record.fields.end(), fields.begin(), fields.end());
    line = json_line(record);
  } else {
    line = tool_ + ": ";
    if (!label.empty() && settings_.color) line += color_of(level);
    line += label;
    if (!label.empty() && settings_.color) line += "\033[0m";
    line += printable(text);
  }
  line += '\n';
  const std::lock_guard lock(mutex_);
  erase_locked();
  write_to_stderr(line);
}

void Messages::error(const Error& failure) {
  std::vector<Field> fields;
  if (failure.system_errno() != 0) fields.push_back({"errno", std::int64_t{failure.system_errno()}});
  put("error", "", failure.what(), fields);
  if (!failure.hint().empty()) hint(failure.hint());
}

void Messages::error(std::string_view text) { put("error", "", text); }

void Messages::warning(std::string_view text) {
  if (!settings_.quiet) put("warning", "warning: ", text);
}

void Messages::hint(std::string_view text) {
  if (!settings_.quiet) put("hint", "hint: ", text);
}

void Messages::note(std::string_view text) {
  if (settings_.verbose) put("note", "", text);
}

void Messages::event(std::string_view type, std::string_view text, const std::vector<Field>& fields, bool is_news) {
  const bool is_said = settings_.json || settings_.verbose || (is_news && !settings_.quiet);
  if (is_said) put(type, "", text, fields);
}

void Messages::progress(std::string_view text) { put("progress", "", text); }

}  // namespace ckpt::cli
