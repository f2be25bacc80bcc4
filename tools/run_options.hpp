// SPDX-License-Identifier: Apache-2.0
// ckpt-run's command line.
#pragma once

#include <ckpt/run.hpp>

#include <optional>
#include <vector>

#include "cli/program.hpp"

namespace ckpt::cli {

struct RunRequest {
  RunOptions run;            ///< but for its descriptors
  std::vector<int> signals;  ///< that are looked at: those that ask to end, and those for the ranks
};

/// Nothing after --help and --version.
[[nodiscard]] std::optional<RunRequest> parse_run_request(Program& program);

}  // namespace ckpt::cli
