// SPDX-License-Identifier: Apache-2.0
// The text of --help: at most 80 columns, the exit status table last.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/command_line.hpp"
#include "cli/exit_status.hpp"

namespace ckpt::cli {

struct ToolInfo {
  std::string_view name;
  std::vector<std::string_view> synopsis;  ///< what follows the name, a line each
  std::string_view summary;                ///< a sentence or two
  std::vector<ExitRow> exits;
};

[[nodiscard]] std::string help_page(const ToolInfo& info, const CommandLine& line);

}  // namespace ckpt::cli
