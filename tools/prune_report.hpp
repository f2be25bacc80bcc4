// SPDX-License-Identifier: Apache-2.0
// What ckpt-prune prints.
#pragma once

#include <ckpt/prune.hpp>

#include "cli/program.hpp"

namespace ckpt::cli {

/// Records for programs; for people a table if nothing was done, and else only what -v shows: cron mails what is
/// printed.
void put_decisions(Program& program, Report& report, const PruneOptions& options, const PruneReport& pruned);

}  // namespace ckpt::cli
