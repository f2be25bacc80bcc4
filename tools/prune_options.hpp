// SPDX-License-Identifier: Apache-2.0
// The options that say what a prune keeps: ckpt-prune's own, and those in ckpt-serve's --prune.
#pragma once

#include <ckpt/prune.hpp>

#include "cli/command_line.hpp"

namespace ckpt::cli {

void declare_prune_options(CommandLine& line, PruneOptions& prune);

}  // namespace ckpt::cli
