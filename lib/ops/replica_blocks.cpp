// SPDX-License-Identifier: Apache-2.0
#include "ops/replica_blocks.hpp"

#include "format/damaged.hpp"
#include "ops/open_shard.hpp"
#include "ops/stdin_spool.hpp"
#include "ops/sync_ends.hpp"
#include "store/bases.hpp"
#include "transport/wire.hpp"

#include <ckpt/error.hpp>

#include <algorithm>

namespace ckpt::ops {
namespace {

constexpr int most_tries = 2;

}  // namespace

ReplicaBlocks::ReplicaBlocks(Places places, Monitor& monitor)
    : places_(std::move(places)),
      monitor_(monitor),
      replicas_(places_.replicas.size()),
      tries_left_(replicas_.size(), most_tries) {}

/// Not owned: what this opens lives no longer than the container that asked for it, which holds this.
std::shared_ptr<const format::BaseContainers> ReplicaBlocks::self() const {
  return std::shared_ptr<const format::BaseContainers>(std::shared_ptr<void>(), this);
}

void ReplicaBlocks::say(const std::string& what) const {
  if (std::find(said_.begin(), said_.end(), what) != said_.end()) return;
  said_.push_back(what);
  monitor_.warning(what);
}

/// What isn't an answer is the connection's end.
void ReplicaBlocks::note_failure(std::size_t i, const Error& error) const {
  say("'" + places_.replicas[i] + "' doesn't help: " + error.what());
  if (error.code() == Errc::busy || error.code() == Errc::malformed) replicas_[i].reset();
}

transport::Replica* ReplicaBlocks::replica(std::size_t i) const {
  if (replicas_[i] != nullptr || tries_left_[i] == 0) return replicas_[i].get();
  --tries_left_[i];
  try {
    replicas_[i] = open_replica(places_.replicas[i], places_.peer, monitor_);
  } catch (const Error& error) {
    if (error.code() == Errc::interrupted) throw;
    say("'" + places_.replicas[i] + "' can't be asked: " + error.what());
  }
  return replicas_[i].get();
}

void ReplicaBlocks::remember(const format::ContainerReader& container, const format::BaseCheckpoint& checkpoint,
                             std::uint32_t rank) const {
  const std::lock_guard lock(mutex_);
  owners_[container.digest()] = {.checkpoint = checkpoint, .rank = rank};
}

std::shared_ptr<const format::ContainerReader> ReplicaBlocks::open_local(const store::Checkpoint& checkpoint,
                                                                         std::uint32_t rank) const {
  auto reader = open_shard(checkpoint, rank, self());
  remember(*reader, checkpoint.manifest.identity(), rank);
  return reader;
}

std::shared_ptr<const format::ContainerReader> ReplicaBlocks::open(const format::BaseCheckpoint& checkpoint,
                                                                   std::uint32_t rank) const {
  try {
    const auto found = store::find_base(places_.store, checkpoint);
    if (found && rank < found->manifest.world_size) return open_local(*found, rank);
  } catch (const format::Damaged&) {
    // A replica may do.
  }
  Fetched fetched = fetch(checkpoint, rank);
  auto reader = std::make_shared<const format::ContainerReader>(fetched.path, self());
  if (reader->index().root != fetched.shard.root)
    throw format::Damaged(DamageKind::altered, 0, 0, "a replica's container isn't what its manifest says");
  remember(*reader, checkpoint, rank);
  const std::lock_guard lock(mutex_);
  fetched_.push_back(std::move(fetched.file));
  return reader;
}

std::optional<Bytes> ReplicaBlocks::substitute(const format::ContainerReader& container, std::uint64_t block) const {
  const std::lock_guard lock(mutex_);
  const auto owner = owners_.find(container.digest());
  if (owner == owners_.end()) return std::nullopt;
  const format::BlockRecord& record = container.index().blocks[block];
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    transport::Replica* const other = replica(i);
    if (other == nullptr) continue;
    try {
      Bytes bytes = other->read_block(owner->second.checkpoint, owner->second.rank, block);
      if (bytes.size() != record.raw_size || xxh3_128(bytes) != record.hash) continue;
      say("'" + container.path() + "' is damaged; blocks of it come from '" + other->name() + "'");
      return bytes;
    } catch (const Error& error) {
      if (error.code() == Errc::interrupted) throw;
      note_failure(i, error);
    }
  }
  return std::nullopt;
}

ReplicaBlocks::Fetched ReplicaBlocks::fetch(const format::BaseCheckpoint& checkpoint, std::uint32_t rank) const {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    transport::Replica* const other = replica(i);
    if (other == nullptr) continue;
    try {
      const std::string text = other->manifest(checkpoint, true);
      const format::Manifest manifest = format::decode_manifest(text, "a manifest of '" + other->name() + "'");
      if (manifest.identity() != checkpoint || rank >= manifest.shards.size()) continue;
      const format::ManifestShard& shard = manifest.shards[rank];
      Fetched fetched{.file = open_nameless(places_.scratch), .path = {}, .shard = shard, .bases = manifest.bases};
      fetched.path = "/proc/self/fd/" + std::to_string(fetched.file.get());
      Bytes piece;
      for (std::uint64_t at = 0; at < shard.size; at += piece.size()) {
        piece.resize(std::min<std::uint64_t>(transport::max_piece, shard.size - at));
        other->read({.checkpoint = checkpoint, .retired = true, .set = {}, .file = shard.file}, at, piece);
        os::write_at(fetched.file, at, piece, "a container from '" + other->name() + "'");
      }
      say("step " + std::to_string(checkpoint.step) + " rank " + std::to_string(rank) + " comes from '" +
          other->name() + "'");
      return fetched;
    } catch (const Error& error) {
      if (error.code() == Errc::interrupted || error.code() == Errc::no_space) throw;
      note_failure(i, error);
    }
  }
  throw format::Damaged(DamageKind::missing, 0, 0,
                        "no replica has rank " + std::to_string(rank) + " of step " + std::to_string(checkpoint.step) +
                            " with the same content");
}

std::optional<format::Manifest> ReplicaBlocks::manifest_of(std::uint64_t step) const {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    transport::Replica* const other = replica(i);
    if (other == nullptr) continue;
    try {
      for (const transport::ReplicaCheckpoint& entry : other->inventory().checkpoints) {
        if (entry.retired || entry.identity.step != step) continue;
        return format::decode_manifest(other->manifest(entry.identity, false), "a manifest of '" + other->name() + "'");
      }
    } catch (const Error& error) {
      if (error.code() == Errc::interrupted) throw;
      note_failure(i, error);
    }
  }
  return std::nullopt;
}

}  // namespace ckpt::ops
