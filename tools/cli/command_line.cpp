// SPDX-License-Identifier: Apache-2.0
// CLI11 does the parsing and stays in this file. What it would let pass and these tools don't (a value for a flag, an
// empty one) is refused before it; its own errors are put in our words.
#include "cli/command_line.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ckpt/error.hpp>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "cli/text_escape.hpp"

namespace ckpt::cli {
namespace {

using Specs = std::vector<OptionSpec>;

[[noreturn]] void refuse(const std::string& message) { throw Error(Errc::invalid_argument, message); }

const OptionSpec* find_long(const Specs& specs, std::string_view name) {
  const auto at = std::ranges::find(specs, name, &OptionSpec::name);
  return at == specs.end() ? nullptr : &*at;
}

const OptionSpec* find_letter(const Specs& specs, char letter) {
  const auto at = std::ranges::find(specs, letter, &OptionSpec::letter);
  return at == specs.end() || letter == '\0' ? nullptr : &*at;
}

// True if the argument is an option that takes the next argument as its value.
bool check_long(const Specs& specs, std::string_view argument) {
  const std::size_t equals = argument.find('=');
  const OptionSpec* spec = find_long(specs, argument.substr(2, equals - 2));
  if (spec == nullptr) return false;
  const bool has_value = equals != std::string_view::npos;
  if (spec->metavar.empty() && has_value) refuse(fmt::format("option '--{}' takes no value", spec->name));
  if (has_value && equals + 1 == argument.size()) refuse(fmt::format("option '--{}' has an empty value", spec->name));
  return !spec->metavar.empty() && !has_value;
}

bool check_letters(const Specs& specs, std::string_view argument) {
  for (std::size_t at = 1; at < argument.size(); ++at) {
    const OptionSpec* spec = find_letter(specs, argument[at]);
    if (spec == nullptr) return false;
    if (!spec->metavar.empty()) return at + 1 == argument.size();
  }
  return false;
}

void check_forms(const Specs& specs, const std::vector<std::string>& arguments) {
  bool is_value = false;
  std::string_view last;
  for (const std::string& argument : arguments) {
    if (std::exchange(is_value, false)) continue;
    if (argument == "--") return;
    last = argument;
    if (argument.starts_with("--")) {
      is_value = check_long(specs, argument);
    } else if (argument.starts_with('-')) {
      is_value = check_letters(specs, argument);
    }
  }
  if (is_value) refuse(fmt::format("option '{}' needs a value", last));
}

std::string names_for_cli11(const OptionSpec& spec) {
  if (spec.letter == '\0') return "--" + spec.name;
  return fmt::format("-{},--{}", spec.letter, spec.name);
}

void set_value(const OptionSpec& spec, const std::string& text) {
  try {
    spec.set(text);
  } catch (const Error& error) {
    refuse(fmt::format("option '--{}': {}", spec.name, error.what()));
  }
}

void declare(CLI::App& app, const OptionSpec& spec) {
  const auto set_all = [&spec](const CLI::results_t& texts) {
    for (const std::string& text : texts) set_value(spec, spec.metavar.empty() ? std::string() : text);
    return true;
  };
  app.add_option(names_for_cli11(spec), set_all)
      ->type_size(spec.metavar.empty() ? 0 : 1)
      ->expected(spec.metavar.empty() ? 0 : 1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

// What CLI11 could make nothing of, in order: unknown options, operands, and the first "--".
std::vector<std::string> operands_of(std::vector<std::string> rest) {
  const auto mark = std::ranges::find(rest, "--");
  const auto is_option = [](const std::string& text) { return text.size() > 1 && text.front() == '-'; };
  const auto unknown = std::find_if(rest.begin(), mark, is_option);
  if (unknown != mark) refuse(fmt::format("unknown option '{}'", unknown->substr(0, unknown->find('='))));
  if (mark != rest.end()) rest.erase(mark);
  return rest;
}

std::string joined(const std::vector<std::string>& texts) { return fmt::format("{}", fmt::join(texts, ",")); }

}  // namespace

OptionSpec& CommandLine::add(std::string_view names, std::string metavar, std::string help) {
  OptionSpec spec;
  if (names.size() > 3 && names[1] != '-') {
    spec.letter = names[1];
    names.remove_prefix(3);
  }
  spec.name = names.substr(2);
  spec.metavar = std::move(metavar);
  spec.help = std::move(help);
  spec.section = sections_.empty() ? 0 : sections_.size() - 1;
  options_.push_back(std::move(spec));
  return options_.back();
}

void CommandLine::flag(std::string_view names, std::string help, std::function<void()> set,
                       std::function<std::string()> show) {
  OptionSpec& spec = add(names, {}, std::move(help));
  spec.set = [set = std::move(set)](const std::string&) { set(); };
  spec.show = std::move(show);
}

void CommandLine::flag(std::string_view names, std::string help, bool& target) {
  flag(
      names, std::move(help), [&target] { target = true; }, [&target] { return std::string(target ? "yes" : "no"); });
}

void CommandLine::option(std::string_view names, std::string metavar, std::string help,
                         std::function<void(const std::string&)> set, std::function<std::string()> show) {
  OptionSpec& spec = add(names, std::move(metavar), std::move(help));
  spec.set = std::move(set);
  spec.show = std::move(show);
}

void CommandLine::option(std::string_view names, std::string metavar, std::string help, std::string& target) {
  option(
      names, std::move(metavar), std::move(help), [&target](const std::string& text) { target = text; },
      [&target] { return target; });
}

void CommandLine::option(std::string_view names, std::string metavar, std::string help,
                         std::optional<std::string>& target) {
  option(
      names, std::move(metavar), std::move(help), [&target](const std::string& text) { target = text; },
      [&target] { return target.value_or(""); });
}

void CommandLine::option(std::string_view names, std::string metavar, std::string help,
                         std::vector<std::string>& target) {
  option(
      names, std::move(metavar), std::move(help), [&target](const std::string& text) { target.push_back(text); },
      [&target] { return joined(target); });
}

std::vector<std::string> CommandLine::parse(std::vector<std::string> arguments) const {
  check_forms(options_, arguments);
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  for (const OptionSpec& spec : options_) declare(app, spec);
  try {
    // CLI11 reads from the back.
    std::ranges::reverse(arguments);
    app.parse(std::move(arguments));
  } catch (const CLI::Error& error) {
    refuse(error.what());
  }
  return operands_of(app.remaining());
}

std::string CommandLine::settings() const {
  std::string text;
  for (const OptionSpec& spec : options_) {
    if (!spec.show) continue;
    const std::string value = spec.show();
    if (!text.empty()) text += ' ';
    text += fmt::format("{}={}", spec.name, value.empty() ? "-" : value);
  }
  return text;
}

}  // namespace ckpt::cli
