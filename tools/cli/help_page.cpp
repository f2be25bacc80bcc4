// SPDX-License-Identifier: Apache-2.0
// Two columns: what one types, and what it means, wrapped at words.
#include "cli/help_page.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace ckpt::cli {
namespace {

constexpr std::size_t page_width = 79;
constexpr std::size_t left_width = 26;

// `text` wrapped at words, each line but the first indented.
std::string wrapped(std::string_view text, std::size_t indent) {
  std::string out;
  std::size_t column = indent;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const bool first = column == indent;
    if (!first && column + 1 + end > page_width) {
      out += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (!first) {
      out += ' ';
      ++column;
    }
    out += text.substr(0, end);
    column += end;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out + '\n';
}

std::string two_columns(const std::string& left, std::string_view right, std::size_t width) {
  if (left.size() + 2 > width) return left + '\n' + std::string(width, ' ') + wrapped(right, width);
  return fmt::format("{:<{}}{}", left, width, wrapped(right, width));
}

std::string option_names(const OptionSpec& spec) {
  const std::string letter = spec.letter == '\0' ? "    " : fmt::format("-{}, ", spec.letter);
  const std::string value = spec.metavar.empty() ? "" : "=" + spec.metavar;
  return fmt::format("  {}--{}{}", letter, spec.name, value);
}

}  // namespace

std::string help_page(const ToolInfo& info, const CommandLine& line) {
  std::string out;
  for (const std::string_view synopsis : info.synopsis) {
    out += fmt::format("{} {} {}\n", out.empty() ? "Usage:" : "      ", info.name, synopsis);
  }
  out += '\n' + wrapped(info.summary, 0);
  for (std::size_t section = 0; section < line.sections().size(); ++section) {
    out += fmt::format("\n{}:\n", line.sections()[section]);
    for (const OptionSpec& spec : line.options()) {
      if (spec.section == section) out += two_columns(option_names(spec), spec.help, left_width);
    }
  }
  out += "\nExit status:\n";
  for (const ExitRow& row : info.exits) out += two_columns(fmt::format("  {}", row.code), row.meaning, 10);
  return out;
}

}  // namespace ckpt::cli
