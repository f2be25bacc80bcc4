// SPDX-License-Identifier: Apache-2.0
// Which checkpoints sets in the making are decoded against. What removes or changes a checkpoint asks here first.
#pragma once

#include "format/base.hpp"
#include "store/store.hpp"

#include <set>

namespace ckpt::store {

/// The checkpoints that sets in the making depend on. What can't be read depends on nothing: it can't be
/// committed.
[[nodiscard]] std::set<format::BaseCheckpoint> bases_of_sets(const Store& store);

/// True if a checkpoint needs another, itself or by way of its bases.
[[nodiscard]] bool depends_on(const Store& store, const Checkpoint& checkpoint, const format::BaseCheckpoint& other);

}  // namespace ckpt::store
