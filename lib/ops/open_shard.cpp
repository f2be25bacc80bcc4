// SPDX-License-Identifier: Apache-2.0
#include "ops/open_shard.hpp"

#include "format/damaged.hpp"
#include "ops/stored_bases.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace ckpt::ops {
namespace {

constexpr std::size_t most_shards_open = 8;

std::shared_ptr<const format::ContainerReader> open_named(const store::Checkpoint& checkpoint,
                                                          const format::ManifestShard& shard,
                                                          std::shared_ptr<const format::BaseContainers> bases) {
  const std::string path = checkpoint.shard_path(shard);
  try {
    auto reader = std::make_shared<const format::ContainerReader>(path, std::move(bases));
    if (reader->digest() == shard.digest && reader->index().root == shard.root) return reader;
  } catch (const Error& error) {
    // What can't be read is damage, as another checkpoint may do instead.
    if (error.code() != Errc::io) throw;
    throw format::Damaged(DamageKind::unreadable, 0, 0, error.what());
  }
  throw format::Damaged(DamageKind::altered, 0, 0, "'" + path + "' is not the container that the manifest names");
}

}  // namespace

std::shared_ptr<const format::ContainerReader> open_shard(const store::Checkpoint& checkpoint, std::size_t shard,
                                                          std::shared_ptr<const format::BaseContainers> bases) {
  if (bases == nullptr) bases = bases_for(checkpoint);
  const format::ManifestShard& named = checkpoint.manifest.shards.at(shard);
  try {
    return open_named(checkpoint, named, bases);
  } catch (const Error& error) {
    if (error.code() != Errc::not_found) throw;
  }
  const auto manifest = store::read_manifest(checkpoint.directory);
  if (manifest && manifest->id == checkpoint.manifest.id && manifest->shards.at(shard).file != named.file) {
    try {
      return open_named(checkpoint, manifest->shards.at(shard), bases);
    } catch (const Error& error) {
      if (error.code() != Errc::not_found) throw;
    }
  }
  throw format::Damaged(DamageKind::missing, 0, 0, "'" + checkpoint.shard_path(named) + "' is missing");
}

void require_allowed(const store::Checkpoint& checkpoint, bool allow_lossy) {
  const auto lossy = checkpoint.manifest.marks.find("lossy");
  if (allow_lossy || lossy == checkpoint.manifest.marks.end()) return;
  const std::string why = lossy->second.empty() ? "" : ": " + lossy->second;
  throw Error(Errc::unsupported, "'" + checkpoint.directory + "' is not what was saved: it has lost values" + why)
      .with_hint("--allow-lossy takes it all the same");
}

std::optional<store::Checkpoint> encoded_anew_since(const store::Checkpoint& checkpoint) {
  auto manifest = store::read_manifest(checkpoint.directory);
  if (!manifest || manifest->id != checkpoint.manifest.id) return std::nullopt;
  const auto same_file = [](const format::ManifestShard& a, const format::ManifestShard& b) {
    return a.file == b.file;
  };
  if (std::equal(manifest->shards.begin(), manifest->shards.end(), checkpoint.manifest.shards.begin(),
                 checkpoint.manifest.shards.end(), same_file)) {
    return std::nullopt;
  }
  store::Checkpoint now = checkpoint;
  now.manifest = std::move(*manifest);
  return now;
}

Shards open_shards(const store::Checkpoint& checkpoint, std::optional<std::uint32_t> rank) {
  const std::uint32_t world_size = checkpoint.manifest.world_size;
  if (rank && *rank >= world_size) {
    throw Error(Errc::not_found, "'" + checkpoint.directory + "' has no rank " + std::to_string(*rank) +
                                     ": its world size is " + std::to_string(world_size));
  }
  const auto bases = bases_for(checkpoint);
  Shards shards;
  for (std::uint32_t r = rank.value_or(0); r < (rank ? *rank + 1 : world_size); ++r) {
    shards.push_back(open_shard(checkpoint, r, bases));
  }
  return shards;
}

ShardReaders::ShardReaders(const store::Checkpoint& checkpoint)
    : checkpoint_(checkpoint), bases_(bases_for(checkpoint)) {}

std::shared_ptr<const format::ContainerReader> ShardReaders::get(std::size_t shard) {
  const auto found = std::find_if(open_.begin(), open_.end(), [&](const Open& o) { return o.shard == shard; });
  if (found != open_.end()) {
    std::rotate(found, found + 1, open_.end());
    return open_.back().reader;
  }
  if (open_.size() == most_shards_open) open_.erase(open_.begin());
  open_.push_back({.shard = shard, .reader = open_shard(checkpoint_, shard, bases_)});
  return open_.back().reader;
}

}  // namespace ckpt::ops
