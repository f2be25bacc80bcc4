// SPDX-License-Identifier: Apache-2.0
// What the tools' exit codes mean, and which code an error of the library becomes.
#pragma once

#include <ckpt/error.hpp>

#include <string_view>
#include <vector>

namespace ckpt::cli {

inline constexpr int exit_done = 0;
inline constexpr int exit_no = 1;  ///< the answer is no: damaged, none yet
inline constexpr int exit_trouble = 2;
inline constexpr int exit_temporary = 75;

[[nodiscard]] int exit_status_of(Errc code);

/// Of the statuses of several items the one to end with: trouble, then no, then temporary.
[[nodiscard]] int worse_of(int a, int b);

/// One line of the table that ends a tool's help.
struct ExitRow {
  std::string_view code;
  std::string_view meaning;
};

/// The table of a tool; `no` is what 1 means to it, empty if it never ends with 1.
[[nodiscard]] std::vector<ExitRow> exit_table(std::string_view done, std::string_view no);

}  // namespace ckpt::cli
