// SPDX-License-Identifier: Apache-2.0
// Which checkpoints others are decoded against. What removes or changes a checkpoint asks here first.
#pragma once

#include "core/digest.hpp"
#include "store/store.hpp"

#include <cstdint>
#include <set>
#include <vector>

namespace ckpt::store {

/// A checkpoint that another one depends on. The id names it; the step says where it was.
struct Base {
  Digest id;
  std::uint64_t step = 0;
};

/// The checkpoints that one depends on.
[[nodiscard]] std::vector<Base> bases_of(const format::Manifest& manifest);

/// Ids of the checkpoints that sets in the making depend on. What can't be read depends on nothing: it can't be
/// committed.
[[nodiscard]] std::set<Digest> bases_of_sets(const Store& store);

}  // namespace ckpt::store
