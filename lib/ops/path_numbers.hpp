// SPDX-License-Identifier: Apache-2.0
// Trainers put steps and ranks into the names of their files: what is left without them says which files are alike.
#pragma once

#include <string>
#include <string_view>

namespace ckpt::ops {

[[nodiscard]] inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// A NUL, which no path holds, stands for each number.
[[nodiscard]] inline std::string without_numbers(std::string_view path) {
  std::string out;
  for (const char c : path) {
    if (!is_digit(c)) {
      out.push_back(c);
    } else if (out.empty() || out.back() != '\0') {
      out.push_back('\0');
    }
  }
  return out;
}

}  // namespace ckpt::ops
