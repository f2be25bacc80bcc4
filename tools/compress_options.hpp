// SPDX-License-Identifier: Apache-2.0
// The options of ckpt-compress.
#pragma once

#include <ckpt/compress.hpp>

#include "cli/command_line.hpp"

namespace ckpt::cli {

/// `options` outlives the parsing.
void declare(CommandLine& line, CompressOptions& options);

}  // namespace ckpt::cli
