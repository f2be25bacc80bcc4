// SPDX-License-Identifier: Apache-2.0
// ckpt-sync's options and operands. Names that rsync has mean what they mean there.
#pragma once

#include <ckpt/sync.hpp>

#include <optional>
#include <string>
#include <vector>

#include "cli/program.hpp"

namespace ckpt::cli {

struct SyncRequest {
  SyncOptions sync;
  std::string source_text;  ///< as it was given
  std::vector<SyncStreamOptions::Known> have;
  bool watch = false;
  std::optional<int> until_pid;
  bool server = false;   ///< answers for the one destination
  bool itemize = false;  ///< -i
  bool stats = false;
};

/// Declares, parses and checks. Nothing after --help and --version.
[[nodiscard]] std::optional<SyncRequest> parse_sync_request(Program& program);

}  // namespace ckpt::cli
