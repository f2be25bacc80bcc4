// SPDX-License-Identifier: Apache-2.0
// Opens the containers that a manifest names. A shard that was re-encoded meanwhile has a new file name, so a file that
// is gone makes the manifest be read again, once.
#pragma once

#include "format/container_reader.hpp"
#include "store/store.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace ckpt::ops {

/// Throws Damaged: missing, unreadable, or altered if it isn't the container that the manifest means. `bases` opens
/// what its blocks refer to; by default that's found in the checkpoint's store.
[[nodiscard]] std::shared_ptr<const format::ContainerReader> open_shard(
    const store::Checkpoint& checkpoint, std::size_t shard,
    std::shared_ptr<const format::BaseContainers> bases = nullptr);

/// Throws Errc::unsupported for one that has lost values, unless that's allowed.
void require_allowed(const store::Checkpoint& checkpoint, bool allow_lossy);

/// The checkpoint with its new containers, if it has been encoded anew since it was found.
[[nodiscard]] std::optional<store::Checkpoint> encoded_anew_since(const store::Checkpoint& checkpoint);

/// All shards by rank, or one. Throws as open_shard() does; Errc::not_found if there's no such rank.
using Shards = std::vector<std::shared_ptr<const format::ContainerReader>>;
[[nodiscard]] Shards open_shards(const store::Checkpoint& checkpoint, std::optional<std::uint32_t> rank);

/// Opens shards on demand and keeps a few open, however many ranks there are. Not thread-safe; the readers are.
class ShardReaders {
 public:
  /// `checkpoint` outlives this object.
  explicit ShardReaders(const store::Checkpoint& checkpoint);

  /// `shard` is an index into the manifest's list.
  [[nodiscard]] std::shared_ptr<const format::ContainerReader> get(std::size_t shard);

 private:
  struct Open {
    std::size_t shard = 0;
    std::shared_ptr<const format::ContainerReader> reader;
  };
  const store::Checkpoint& checkpoint_;
  std::shared_ptr<const format::BaseContainers> bases_;
  std::vector<Open> open_;  ///< the last used one is at the end
};

}  // namespace ckpt::ops
