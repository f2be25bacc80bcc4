// SPDX-License-Identifier: Apache-2.0
// Differences for people: rounded, shortened, free to change.
#pragma once

#include <ckpt/diff.hpp>

#include <cstdint>
#include <vector>

#include "cli/report.hpp"

namespace ckpt::cli {

/// `left_out`: tensors or modules that --top leaves out.
void print_tables(Report& report, const DiffReport& diff, const std::vector<const TensorDiff*>& tensors,
                  const std::vector<const ModuleDiff*>& modules, std::uint64_t left_out, bool color);

}  // namespace ckpt::cli
