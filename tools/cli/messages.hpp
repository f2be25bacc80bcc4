// SPDX-License-Identifier: Apache-2.0
// What a tool says on standard error: `ckpt-save: warning: ...`, or JSON lines. Failures to write there are ignored:
// the work goes on. Thread-safe.
#pragma once

#include <ckpt/error.hpp>

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "cli/record.hpp"

namespace ckpt::cli {

class Messages {
 public:
  explicit Messages(std::string_view tool) : tool_(tool) {}

  struct Settings {
    bool quiet = false;    ///< no warnings, hints and notes
    bool verbose = false;  ///< notes too
    bool json = false;
    bool color = false;
  };
  void configure(const Settings& settings) { settings_ = settings; }
  [[nodiscard]] const Settings& settings() const { return settings_; }

  void error(const Error& error);
  void error(std::string_view text);
  void warning(std::string_view text);
  void hint(std::string_view text);
  void note(std::string_view text);

  /// Something that happened. With --log-json its `fields` are said, too, and it's always said; else only `is_news`, or
  /// all with --verbose.
  void event(std::string_view type, std::string_view text, const std::vector<Field>& fields, bool is_news);

  /// A line that stays.
  void progress(std::string_view text);
  /// A line that the next one, or any message, takes the place of. `erase` is what clears it.
  void transient(std::string_view text, std::string erase);
  void erase_transient();

 private:
  void put(std::string_view level, std::string_view label, std::string_view text,
           const std::vector<Field>& fields = {});
  void erase_locked();

  std::string tool_;
  Settings settings_;
  std::mutex mutex_;
  std::string erase_;
};

}  // namespace ckpt::cli
