// SPDX-License-Identifier: Apache-2.0
// What a restore will make: which entry of which shard goes where. Shards are merged here.
#pragma once

#include "format/catalog.hpp"
#include "ops/open_shard.hpp"

#include <ckpt/restore.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace ckpt::ops {

struct PlanItem {
  std::string path;                          ///< below the destination
  std::size_t shard = 0;                     ///< in Shards
  const format::FileEntry* entry = nullptr;  ///< type, mode, times, owner
  const format::FileEntry* content =
      nullptr;  ///< whose blocks make the bytes; null if it isn't a file with bytes of its own

  /// A file that is written, also where the link that it was points to something that isn't restored.
  [[nodiscard]] bool is_file() const { return content != nullptr; }
};

/// Sorted by path. Errors: not_found (a pattern matches nothing), exists (shards hold one path with different content).
[[nodiscard]] std::vector<PlanItem> plan_restore(const Shards& shards, const Selection& select, bool by_rank);

}  // namespace ckpt::ops
