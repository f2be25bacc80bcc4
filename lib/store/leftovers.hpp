// SPDX-License-Identifier: Apache-2.0
// What dead writers left in a store, recognised and cleaned by the next one.
#pragma once

#include "store/store.hpp"

namespace ckpt::store {

/// Removes temporary files and pins of dead processes, what dead swaps and removals left, old decisions to skip, and
/// sets that never got a shard.
void clean_leftovers(const Store& store);

}  // namespace ckpt::store
