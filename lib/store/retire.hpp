// SPDX-License-Identifier: Apache-2.0
// Going back: what is newer than the step that the job resumed from, and of a lower attempt, never happened.
#pragma once

#include "store/store.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace ckpt::store {

/// Moves every checkpoint and set that is newer than `step` and of an attempt below `attempt` to .retired/. Said again
/// it changes nothing; several ranks may say it at once. Returns how many were moved by this call.
std::size_t retire_newer(const Store& store, std::uint64_t step, std::uint64_t attempt);

/// Moves a checkpoint's directory to .retired/ under a name that is free. `suffix` is the start of its id. False if it
/// isn't there any more.
bool retire_directory(const Store& store, const std::string& directory, std::uint64_t step, const std::string& suffix);

/// Sets in .retired/ begin so.
inline constexpr std::string_view retired_set_prefix = "set-";

}  // namespace ckpt::store
