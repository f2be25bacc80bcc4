// SPDX-License-Identifier: Apache-2.0
#include "cli/words.hpp"

#include <fmt/format.h>
#include <ckpt/error.hpp>

namespace ckpt::cli {

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = '\0';
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != '\0' && c == quote) {
      quote = '\0';
    } else if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      word += text[++i];
      in_word = true;
    } else if (quote == '\0' && (c == '\'' || c == '"')) {
      quote = c;
      in_word = true;
    } else if (quote == '\0' && (c == ' ' || c == '\t' || c == '\n')) {
      if (in_word) words.push_back(std::move(word));
      word.clear();
      in_word = false;
    } else {
      word += c;
      in_word = true;
    }
  }
  if (quote != '\0') throw Error(Errc::invalid_argument, fmt::format("a quote isn't closed in '{}'", text));
  if (in_word) words.push_back(std::move(word));
  return words;
}

}  // namespace ckpt::cli
