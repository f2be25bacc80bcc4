// SPDX-License-Identifier: Apache-2.0
// Mends flipped bits in a store. A mended container gets a new name and the manifest is swapped; nothing is changed in
// place, and nothing is believed that doesn't pass every check afterwards.
#pragma once

#include "store/store.hpp"

#include <ckpt/monitor.hpp>
#include <ckpt/verify.hpp>

#include <cstdint>
#include <string>

namespace ckpt::ops {

struct RepairResult {
  bool repaired = false;
  std::string what;  ///< which element and bit; or why it can't be mended
};
/// Takes the store's lock. Errors: no_space, busy, io.
[[nodiscard]] RepairResult repair_shard(const store::Store& store, const store::Checkpoint& checkpoint,
                                        const format::ManifestShard& shard, unsigned jobs, Monitor& monitor);

/// These set `found.repaired` and `found.repair`.
void repair_manifest(const store::Store& store, std::uint64_t step, Damage& found);
void repair_store_description(const std::string& store_path, Damage& found);

}  // namespace ckpt::ops
