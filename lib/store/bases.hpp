// SPDX-License-Identifier: Apache-2.0
// Finding the checkpoints that others are decoded against.
#pragma once

#include "format/base.hpp"
#include "store/store.hpp"

#include <optional>
#include <string>
#include <vector>

namespace ckpt::store {

/// The store that a checkpoint's directory is in.
[[nodiscard]] std::string store_path_of(const Checkpoint& checkpoint);

/// The checkpoint with this id and step, committed or retired. Nothing if the store has none; damaged manifests are
/// passed over.
[[nodiscard]] std::optional<Checkpoint> find_base(const std::string& store_path, const format::BaseCheckpoint& base);

/// Checkpoints, committed and retired, that need this one.
[[nodiscard]] std::vector<Checkpoint> dependents_of(const Store& store, const format::BaseCheckpoint& base);

}  // namespace ckpt::store
