// SPDX-License-Identifier: Apache-2.0
// What ckpt-compress says of each checkpoint.
#pragma once

#include <ckpt/compress.hpp>

#include "cli/program.hpp"

namespace ckpt::cli {

[[nodiscard]] std::string_view name_of(CompressAction action);

/// Records; for people a table of what would be, or notes of what was done.
void put_checkpoints(Program& program, Report& report, const CompressOptions& options, const CompressReport& done);

/// Says on standard error what couldn't be done; gives the exit status.
[[nodiscard]] int put_failures(Program& program, const CompressOptions& options, const CompressReport& done);

}  // namespace ckpt::cli
