// SPDX-License-Identifier: Apache-2.0
// Waits until what was staged is durable.
#pragma once

#include <ckpt/address.hpp>
#include <ckpt/export.hpp>
#include <ckpt/monitor.hpp>
#include <ckpt/state.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ckpt {

struct WaitOptions {
  Address what;                           ///< no selector: all that is staged now; else one step
  std::vector<std::string> spools;        ///< more places to look for staged saves
  std::optional<double> timeout_seconds;  ///< nothing: as long as it takes
  /// Called with a spool's path when something is staged there and no one drains it. May be empty.
  std::function<void(const std::string& spool)> start_worker;
};

struct WaitOutcome {
  std::uint64_t step = 0;
  SaveState state = SaveState::staged;  ///< durable, failed or skipped; what it is now if the time was over
  std::string reason;                   ///< why it failed, was skipped, or isn't durable yet
  std::string id;                       ///< of the checkpoint, once it's durable
};

struct WaitReport {
  std::vector<WaitOutcome> outcomes;  ///< by step
  bool timed_out = false;
  double seconds = 0;
};

/// What failed before counts too: until it's removed, or moved back to be tried again, or its attempt is over. What was
/// skipped counts as long as nothing newer is durable.
///
/// Errors: not_found (no such store; the step is neither stored nor on its way), invalid_argument (a selector that
/// isn't a step), interrupted, io.
[[nodiscard]] CKPT_API WaitReport wait(const WaitOptions& options, Monitor& monitor);

}  // namespace ckpt
