// SPDX-License-Identifier: Apache-2.0
// Puts new containers in the place of a committed checkpoint's: the rename of a new manifest.json over the old one is
// the single moment of change. A reader gets either version; after a crash, files that no manifest names are leftovers.
#pragma once

#include "store/store.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace ckpt::store {

/// How long a second one that replaces, repairs or re-encodes waits for the first.
inline constexpr std::chrono::seconds swap_patience{60};

/// The store's lock for all that removes or re-encodes. Writers never take it.
[[nodiscard]] std::string lock_path(const Store& store);

/// As Store::find(). But where the manifest is damaged or gone, and nothing but shards lies beside it: a checkpoint
/// whose manifest says the step and no more, good for being replaced and nothing else.
[[nodiscard]] std::optional<Checkpoint> find_to_replace(const Store& store, std::uint64_t step);

/// Gives a committed checkpoint the shards in `set_directory`, which `manifest` describes. If others depend on what it
/// held, that is retired.
[[nodiscard]] Checkpoint replace_checkpoint(const Store& store, const Checkpoint& old, const std::string& set_directory,
                                            const format::Manifest& manifest);

/// A container that takes the place of a rank's: a synced file in Store::scratch().
struct NewContainer {
  std::uint32_t rank = 0;
  std::string temporary;
};
/// Gives a checkpoint new containers, all at the same moment, and `manifest`, which describes them but for their names.
/// The caller holds the lock.
void swap_containers(const Store& store, const Checkpoint& checkpoint, format::Manifest manifest,
                     const std::vector<NewContainer>& containers);

/// For a swap that makes chains of bases longer. Announced durably, it keeps Pin::take() from giving out the checkpoint
/// as a base; who had pinned it before can be seen now. swap_containers() ends it, and so does withdraw_swap(). The
/// caller holds the lock.
void announce_swap(const Store& store, const Checkpoint& checkpoint);
void withdraw_swap(const Store& store, const Checkpoint& checkpoint);
/// True for what is being swapped, or was when its process died and hasn't been cleaned up.
[[nodiscard]] bool swap_is_announced(const Store& store, const Checkpoint& checkpoint);

/// Replaces the manifest alone. The caller holds the lock.
void swap_manifest(const Store& store, const Checkpoint& checkpoint, const format::Manifest& manifest);

/// Deletes what no manifest names in a checkpoint's directory. The caller holds the lock. False if some of it is still
/// there.
bool remove_unnamed(const Checkpoint& checkpoint);

/// Finishes the clean-up of swaps whose process died: tells them by their markers.
void clean_dead_swaps(const Store& store);

}  // namespace ckpt::store
