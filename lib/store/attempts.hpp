// SPDX-License-Identifier: Apache-2.0
// Lives of the job: a higher attempt that opened the store bars lower ones from publishing and committing.
#pragma once

#include "store/store.hpp"

#include <cstdint>

namespace ckpt::store {

/// The highest attempt that the store records; 0 in a new one.
[[nodiscard]] std::uint64_t highest_attempt(const Store& store);

/// Records that `attempt` has opened the store, durably. Throws Errc::exists if a higher one has.
void open_attempt(const Store& store, std::uint64_t attempt);

/// Throws Errc::exists if a higher attempt has opened the store.
void require_not_superseded(const Store& store, std::uint64_t attempt);

}  // namespace ckpt::store
