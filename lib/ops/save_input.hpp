// SPDX-License-Identifier: Apache-2.0
// What a save is asked for, checked, and what its operands name.
#pragma once

#include "ops/stdin_spool.hpp"
#include "source/source_tree.hpp"

#include <ckpt/monitor.hpp>
#include <ckpt/save.hpp>

#include <optional>
#include <vector>

namespace ckpt::ops {

/// Step, rank, world size and the like. Throws invalid_argument.
void check_shard_options(const SaveOptions& options);
/// The sources too. Throws invalid_argument. Where the state goes is the caller's to check.
void check_save_options(const SaveOptions& options);

struct SaveInput {
  std::optional<StdinSpool> standard_input;  ///< lives as long as what is read
  std::vector<source::TreeEntry> entries;    ///< arranged
};
/// Walks the operands; reads standard input to its end if it's one of them, into a nameless file near `scratch`, which
/// needn't exist.
[[nodiscard]] SaveInput find_input(const SaveOptions& options, const std::string& scratch, Monitor& monitor);

}  // namespace ckpt::ops
