// SPDX-License-Identifier: Apache-2.0
// A tool's options: each is said once, here, and parsed, explained by --help and shown by --verbose from that.
//
// Options may follow operands, `--` ends them, none has an optional value, the last one given wins. All failures are
// Errc::invalid_argument. Targets must outlive parse() and settings().
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/quantities.hpp"

namespace ckpt::cli {

struct OptionSpec {
  char letter = '\0';
  std::string name;     ///< without the dashes
  std::string metavar;  ///< empty: a flag
  std::string help;
  std::size_t section = 0;
  std::function<void(const std::string&)> set;  ///< a flag's gets an empty text, each time it's given
  std::function<std::string()> show;            ///< the effective value
};

class CommandLine {
 public:
  /// The options that follow stand under this title.
  void section(std::string title) { sections_.push_back(std::move(title)); }

  /// `names` is "-o,--output" or "--output".
  void flag(std::string_view names, std::string help, bool& target);
  void flag(std::string_view names, std::string help, std::function<void()> set, std::function<std::string()> show);

  void option(std::string_view names, std::string metavar, std::string help, std::string& target);
  void option(std::string_view names, std::string metavar, std::string help, std::optional<std::string>& target);
  /// May be given more than once.
  void option(std::string_view names, std::string metavar, std::string help, std::vector<std::string>& target);
  void option(std::string_view names, std::string metavar, std::string help,
              std::function<void(const std::string&)> set, std::function<std::string()> show);

  template <std::unsigned_integral T>
  void option(std::string_view names, std::string metavar, std::string help, T& target, T low = 0,
              T high = std::numeric_limits<T>::max()) {
    option(
        names, std::move(metavar), std::move(help),
        [&target, low, high](const std::string& text) { target = static_cast<T>(parse_number(text, low, high)); },
        [&target] { return std::to_string(target); });
  }
  template <std::unsigned_integral T>
  void option(std::string_view names, std::string metavar, std::string help, std::optional<T>& target, T low = 0,
              T high = std::numeric_limits<T>::max()) {
    option(
        names, std::move(metavar), std::move(help),
        [&target, low, high](const std::string& text) { target = static_cast<T>(parse_number(text, low, high)); },
        [&target] { return target ? std::to_string(*target) : std::string(); });
  }

  /// Sets the targets and gives back the operands.
  [[nodiscard]] std::vector<std::string> parse(std::vector<std::string> arguments) const;

  /// "name=value name=value ...": the values in effect.
  [[nodiscard]] std::string settings() const;

  [[nodiscard]] const std::vector<OptionSpec>& options() const { return options_; }
  [[nodiscard]] const std::vector<std::string>& sections() const { return sections_; }

 private:
  OptionSpec& add(std::string_view names, std::string metavar, std::string help);

  std::vector<OptionSpec> options_;
  std::vector<std::string> sections_;
};

}  // namespace ckpt::cli
