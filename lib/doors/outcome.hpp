// SPDX-License-Identifier: Apache-2.0
// What a server tells a producer that waits: a JSON object with `state`, and `id` or `reason`.
#pragma once

#include <ckpt/save.hpp>
#include <ckpt/state.hpp>

#include <string>
#include <string_view>

namespace ckpt::doors {

struct Outcome {
  SaveState state = SaveState::failed;  ///< written, durable, verified, skipped or failed
  std::string id;                       ///< of the checkpoint, if it's committed
  std::string reason;                   ///< why it was skipped or failed
};

[[nodiscard]] std::string encode_outcome(const Outcome& outcome);
/// Throws Damaged.
[[nodiscard]] Outcome decode_outcome(std::string_view text, const std::string& name);

/// None is larger, in bytes.
inline constexpr std::size_t max_outcome_size = 65536;

}  // namespace ckpt::doors
