// SPDX-License-Identifier: Apache-2.0
#include "ops/stored_bases.hpp"

#include "format/damaged.hpp"
#include "ops/open_shard.hpp"
#include "os/fd.hpp"
#include "store/bases.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <utility>

namespace ckpt::ops {
namespace {

constexpr std::size_t most_bases_open = 32;

}  // namespace

std::shared_ptr<const format::ContainerReader> StoredBases::open(const format::BaseCheckpoint& checkpoint,
                                                                 std::uint32_t rank) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(open_.begin(), open_.end(),
                                  [&](const Open& o) { return o.checkpoint == checkpoint && o.rank == rank; });
  if (found != open_.end()) {
    // Encoded anew, it may be what others are stored against that it was stored against: the two never go together.
    if (os::exists(found->reader->path())) {
      std::rotate(found, found + 1, open_.end());
      return open_.back().reader;
    }
    open_.erase(found);
  }
  const auto base = store::find_base(store_path_, checkpoint);
  if (!base || rank >= base->manifest.world_size) {
    throw format::Damaged(DamageKind::missing, 0, 0,
                          "the checkpoint " + to_hex(checkpoint.id) + " of step " + std::to_string(checkpoint.step) +
                              ", which is needed as a base, is not in '" + store_path_ + "'");
  }
  // Not owned: what this opens lives no longer than the container that asked for it, which holds this.
  const std::shared_ptr<const format::BaseContainers> self(std::shared_ptr<void>(), this);
  auto reader = open_shard(*base, rank, self);
  if (open_.size() == most_bases_open) open_.erase(open_.begin());
  open_.push_back({.checkpoint = checkpoint, .rank = rank, .reader = reader});
  return reader;
}

std::shared_ptr<const format::BaseContainers> bases_for(const store::Checkpoint& checkpoint) {
  return std::make_shared<const StoredBases>(store::store_path_of(checkpoint));
}

}  // namespace ckpt::ops
