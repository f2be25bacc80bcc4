// SPDX-License-Identifier: Apache-2.0
// The shards of one step on their way to a checkpoint: publishing one, and committing the set once it's complete.
//
// Nothing here waits for another rank. Whichever writer finds a set complete commits it; two at once are harmless,
// since publishing is a link (first wins) and committing a rename of the whole directory.
#pragma once

#include "format/ends.hpp"
#include "store/store.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ckpt::store {

enum class Published {
  linked,     ///< the shard is in its set now
  in_set,     ///< the set held the same content already
  committed,  ///< the committed checkpoint holds the same content already
};

struct PublishRequest {
  SetKey set;
  std::uint32_t rank = 0;
  Digest root;            ///< of the shard
  std::string temporary;  ///< the synced container in Store::scratch(); it's left where it is
  bool replace = false;
};

/// Links a shard into its set, durably. Throws Errc::exists if the same rank has published other content and `replace`
/// isn't set, or a higher attempt has opened the store. With `replace` the set is marked, so that whoever completes it
/// replaces what is committed.
Published publish_shard(const Store& store, const PublishRequest& request);

/// What is there of a set: the newest version of each rank's shard, by rank.
struct SetContent {
  SetKey key;
  std::map<std::uint32_t, std::string> files;
  [[nodiscard]] bool complete() const { return files.size() == key.world_size; }
};
[[nodiscard]] std::vector<SetContent> pending_sets(const Store& store);
[[nodiscard]] SetContent pending_set(const Store& store, const SetKey& key);

struct CommitRequest {
  SetKey set;
  std::map<std::string, double> timings;
};

/// Commits a set if it's complete, durably; nothing if it isn't. If the step is committed already with the same id,
/// that checkpoint is the answer; with another id it's Errc::exists, or if the set is marked so it takes its place.
std::optional<Checkpoint> commit_if_complete(const Store& store, const CommitRequest& request);

/// Commits every complete set that a dead writer left behind. What can't be committed stays as it is.
void help_complete_sets(const Store& store);

}  // namespace ckpt::store
