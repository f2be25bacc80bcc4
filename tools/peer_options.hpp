// SPDX-License-Identifier: Apache-2.0
// How other stores are reached: the options that ckpt-sync, ckpt-verify, ckpt-restore and ckpt-serve share.
#pragma once

#include <ckpt/sync.hpp>

#include <optional>
#include <string>

#include "cli/command_line.hpp"

namespace ckpt::cli {

/// Declares -e, --rsh; `target` outlives parsing.
void declare_rsh(CommandLine& line, std::optional<std::string>& target);

/// The words of --rsh, else of CKPT_RSH, else ssh. Throws Errc::invalid_argument.
[[nodiscard]] std::vector<std::string> remote_shell(const std::optional<std::string>& given);

}  // namespace ckpt::cli
