// SPDX-License-Identifier: Apache-2.0
// ckpt-save's options and operands.
#pragma once

#include <ckpt/stage.hpp>

#include <cstdint>
#include <optional>
#include <string>

#include "cli/program.hpp"

namespace ckpt::cli {

struct SaveRequest {
  StageOptions stage;  ///< `stage.save` is the save itself
  bool detach = false;
  std::optional<std::uint32_t> umask;
};

/// Declares, parses and checks. Nothing after --help and --version.
[[nodiscard]] std::optional<SaveRequest> parse_save_request(Program& program);

}  // namespace ckpt::cli
