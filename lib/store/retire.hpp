// SPDX-License-Identifier: Apache-2.0
// Going back: what is newer than the step that the job resumed from, and of a lower attempt, never happened.
#pragma once

#include "store/store.hpp"

#include <cstdint>

namespace ckpt::store {

/// Moves every checkpoint and set that is newer than `step` and of an attempt below `attempt` to .retired/. Said again
/// it changes nothing; several ranks may say it at once. Returns how many were moved by this call.
std::size_t retire_newer(const Store& store, std::uint64_t step, std::uint64_t attempt);

}  // namespace ckpt::store
