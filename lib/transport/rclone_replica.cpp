// SPDX-License-Identifier: Apache-2.0
#include "transport/rclone_replica.hpp"

#include "format/damaged.hpp"
#include "store/layout.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <set>

namespace ckpt::transport {
namespace {

constexpr std::size_t most_readings = 8;

std::vector<std::string> files_of(const format::Manifest& manifest) {
  std::vector<std::string> files;
  for (const format::ManifestShard& shard : manifest.shards) files.push_back(shard.file);
  return files;
}

bool depends_on(const RcloneCheckpoint& checkpoint, const format::BaseCheckpoint& base) {
  return checkpoint.manifest && std::find(checkpoint.manifest->bases.begin(), checkpoint.manifest->bases.end(), base) !=
                                    checkpoint.manifest->bases.end();
}

std::string manifest_object(const std::string& directory) { return directory + "/" + store::manifest_file; }

}  // namespace

RcloneReplica::RcloneReplica(std::string address, const Options& options, Monitor& monitor)
    : remote_(std::move(address), options.patience, monitor), options_(options), monitor_(monitor) {}

RcloneListing& RcloneReplica::listing() {
  if (!listing_) listing_ = std::make_unique<RcloneListing>(remote_, options_.scratch, monitor_);
  return *listing_;
}

Inventory RcloneReplica::inventory() {
  listing_.reset();
  containers_.reset();
  Inventory inventory;
  if (listing().description() != RcloneListing::Description::whole) return inventory;
  inventory.is_store = true;
  for (const bool retired : {false, true}) {
    for (const auto& [directory, found] : listing().checkpoints()) {
      if (found.retired != retired) continue;
      const auto step = store::parse_step_name(directory);
      if (found.is_sound())
        inventory.checkpoints.push_back(describe(*found.manifest, found.retired));
      else if (step && !found.cut_text)  // what was never finished is no checkpoint
        inventory.unreadable.push_back(*step);
    }
  }
  return inventory;
}

const RcloneCheckpoint& RcloneReplica::find(const format::BaseCheckpoint& checkpoint, bool or_retired) {
  const RcloneCheckpoint* found = listing().find(checkpoint, or_retired);
  if (found != nullptr) return *found;
  const std::string step = store::step_name(checkpoint.step);
  throw Error(Errc::not_found, "'" + remote_.address(step) + "' is gone, or has other content");
}

std::string RcloneReplica::manifest(const format::BaseCheckpoint& checkpoint, bool retired) {
  try {
    return listing().manifest_text(find(checkpoint, retired));
  } catch (const Error& error) {
    forget_if_stale(error);
    throw;
  }
}

/// The next look shows what is there now.
void RcloneReplica::forget_if_stale(const Error& error) {
  if (error.code() == Errc::not_found || error.code() == Errc::damaged) listing_.reset();
}

/// Destinations that aren't in step have a run of rclone each.
RcloneReplica::Reading RcloneReplica::take_reading(const FileName& file, std::uint64_t offset) {
  const auto known = std::find_if(readings_.begin(), readings_.end(),
                                  [&](const Reading& r) { return r.next == offset && r.file == file; });
  if (known != readings_.end()) {
    Reading reading = std::move(*known);
    readings_.erase(known);
    return reading;
  }
  if (!file.checkpoint) throw Error(Errc::not_found, "'" + name() + "' keeps no sets");
  const RcloneCheckpoint& found = find(*file.checkpoint, file.retired);
  const auto& shards = found.manifest->shards;
  const auto shard =
      std::find_if(shards.begin(), shards.end(), [&](const format::ManifestShard& s) { return s.file == file.file; });
  if (shard == shards.end())
    throw Error(Errc::not_found, "'" + remote_.address(found.directory) + "' has no such shard");
  return {.file = file,
          .size = shard->size,
          .next = offset,
          .process = remote_.open(found.directory + "/" + file.file, offset)};
}

void RcloneReplica::read(const FileName& file, std::uint64_t offset, std::span<std::byte> into) {
  try {
    Reading reading = take_reading(file, offset);
    const std::size_t got = reading.process->read(into);
    reading.next += got;
    if (got < into.size() || reading.next == reading.size) reading.process->finish();
    if (got < into.size()) {
      throw format::Damaged(DamageKind::truncated, reading.next, reading.size,
                            "'" + name() + "': '" + file.file + "' ends early");
    }
    if (reading.next >= reading.size) return;
    if (readings_.size() == most_readings) readings_.pop_front();
    readings_.push_back(std::move(reading));
  } catch (const Error& error) {
    forget_if_stale(error);
    throw;
  }
}

std::unique_ptr<RcloneContainers> RcloneReplica::containers() {
  return std::make_unique<RcloneContainers>(
      remote_, [this](const format::BaseCheckpoint& checkpoint, std::uint32_t rank) {
        const RcloneCheckpoint& found = find(checkpoint, true);
        if (rank >= found.manifest->shards.size())
          throw Error(Errc::not_found, "'" + remote_.address(found.directory) + "' has no such rank");
        const format::ManifestShard& shard = found.manifest->shards[rank];
        return RcloneContainers::Place{.object = found.directory + "/" + shard.file, .shard = shard};
      });
}

Bytes RcloneReplica::read_block(const format::BaseCheckpoint& checkpoint, std::uint32_t rank, std::uint64_t block) {
  if (!containers_) containers_ = containers();
  return containers_->read_block(checkpoint, rank, block);
}

/// A store's first object, so that what is begun there is known for one.
void RcloneReplica::ensure_description() {
  if (listing().description() == RcloneListing::Description::whole) return;
  const bool is_new = listing().description() == RcloneListing::Description::none && listing().objects().empty();
  if (is_new && !remote_.is_empty()) throw Error(Errc::exists, "'" + name() + "' holds other things and is no store");
  remote_.put(store::description_file, format::encode_store_description());
  listing().note_description();
}

void RcloneReplica::require_free(const std::string& directory, const format::Manifest& manifest, bool replace) {
  const RcloneCheckpoint* taken = listing().at(directory);
  if (taken == nullptr || replace) return;
  if (taken->is_begun(manifest.id)) return;
  if (taken->manifest && taken->manifest->identity() == manifest.identity()) return;
  const std::string what = taken->manifest ? "is " + to_hex(taken->manifest->id) : "has a manifest that can't be read";
  throw Error(Errc::exists, "'" + remote_.address(directory) + "' " + what + " there, and " + to_hex(manifest.id) +
                                " is to take its place")
      .with_hint("--replace lets it");
}

/// Containers of other content keep their names until the new manifest is there: the old one stays whole as long.
format::Manifest RcloneReplica::named_apart(const std::string& directory, format::Manifest manifest) {
  const RcloneCheckpoint* taken = listing().at(directory);
  if (taken == nullptr || !taken->manifest || taken->manifest->identity() == manifest.identity()) return manifest;
  const std::vector<std::string> list = files_of(*taken->manifest);
  const std::set<std::string> names(list.begin(), list.end());
  for (format::ManifestShard& shard : manifest.shards) {
    if (!names.contains(shard.file)) continue;
    if (!manifest.read_only.empty())
      throw Error(Errc::unsupported, "its manifest can't be written anew: " + manifest.read_only);
    store::ShardName free{.rank = shard.rank, .world_size = manifest.world_size, .version = 1};
    while (names.contains(store::shard_name(free))) ++free.version;
    shard.file = store::shard_name(free);
  }
  return manifest;
}

void RcloneReplica::require_bases(const format::Manifest& manifest) {
  for (const format::BaseCheckpoint& base : manifest.bases) {
    if (listing().find(base, true) != nullptr) continue;
    throw Error(Errc::not_found, "'" + remote_.address(store::step_name(manifest.step)) + "' is stored against step " +
                                     std::to_string(base.step) + ", which isn't there");
  }
}

/// Each container says of itself what the manifest says of it, and its blocks lead to full ones: there a base may be
/// stored in another way than here, in longer chains.
void RcloneReplica::require_agreement(const format::Manifest& manifest) {
  const auto identity = manifest.identity();
  for (const format::ManifestShard& shard : manifest.shards) {
    const RcloneContainers fresh(remote_, [&](const format::BaseCheckpoint&, std::uint32_t) {
      return RcloneContainers::Place{.object = directory_ + "/" + shard.file, .shard = shard};
    });
    const auto container = fresh.open(identity, shard.rank);
    const format::ShardInfo& info = container->catalog().shard;
    if (info.rank != shard.rank || info.step != manifest.step || info.world_size != manifest.world_size)
      throw Error(Errc::malformed,
                  "what came as '" + shard.file + "' is another container than its manifest describes");
    const auto stored = containers();
    for (const format::BlockRecord& block : container->index().blocks) {
      if (block.base && block.base->checkpoint != format::own_shard)
        require_base(manifest, shard, container->catalog().bases.at(block.base->checkpoint), block, *stored);
    }
  }
}

void RcloneReplica::require_base(const format::Manifest& manifest, const format::ManifestShard& shard,
                                 const format::BaseCheckpoint& base, const format::BlockRecord& block,
                                 const RcloneContainers& stored) const {
  const auto refuse = [&](const char* why) {
    throw format::Damaged(DamageKind::altered, block.place, block.place + block.stored_size,
                          "a block of '" + shard.file + "' " + why);
  };
  if (base == manifest.identity()) {
    // Shards of one checkpoint refer to lower ranks only: so they never lead in a circle.
    if (block.base->rank >= shard.rank) refuse("leads back to its own checkpoint");
    return;
  }
  if (std::find(manifest.bases.begin(), manifest.bases.end(), base) == manifest.bases.end())
    refuse("has a base that the manifest doesn't name");
  const auto& blocks = stored.open(base, block.base->rank)->index().blocks;
  if (block.base->block < blocks.size() && blocks[block.base->block].depth < block.depth) return;
  throw Error(Errc::unsupported, "'" + remote_.address(store::step_name(base.step)) +
                                     "' is stored in longer chains there than step " + std::to_string(manifest.step) +
                                     ", which needs it, allows");
}

std::optional<std::vector<std::uint64_t>> RcloneReplica::prepare(const Offer& offer) {
  upload_.reset();
  const format::Manifest manifest = format::decode_manifest(offer.manifest, "the manifest that was offered");
  for (const format::ManifestShard& shard : manifest.shards) {
    if (!store::parse_shard_name(shard.file)) throw Error(Errc::malformed, "'" + shard.file + "' is no shard's name");
  }
  ensure_description();
  directory_ = rclone_directory(manifest.identity(), offer.retired);
  listing().refresh(directory_);
  if (listing().find(manifest.identity(), offer.retired) != nullptr) return std::nullopt;
  require_free(directory_, manifest, offer.replace);
  require_bases(manifest);
  format::Manifest named = named_apart(directory_, manifest);
  text_ = files_of(named) == files_of(manifest) ? offer.manifest : format::encode_manifest(named);
  upload_.emplace(remote_, directory_, std::move(named), monitor_);
  return upload_->find_held(listing().objects());
}

std::optional<std::uint64_t> RcloneReplica::prepare_shard(const ReplicaShard&) {
  throw Error(Errc::unsupported, "'" + name() + "' keeps no sets that aren't complete");
}

void RcloneReplica::write(std::uint32_t shard, ByteView bytes) {
  if (!upload_) throw Error(Errc::malformed, "bytes came for nothing that was announced");
  upload_->write(shard, bytes);
}

bool RcloneReplica::commit() {
  if (!upload_) throw Error(Errc::malformed, "a commit of nothing");
  upload_->verify();
  const format::Manifest& manifest = upload_->manifest();
  require_agreement(manifest);
  remote_.put(manifest_object(directory_), text_);
  listing().refresh(directory_);
  const RcloneCheckpoint* committed = listing().at(directory_);
  if (committed == nullptr || !committed->is_sound() || committed->manifest->identity() != manifest.identity())
    throw Error(Errc::busy, "'" + remote_.address(directory_) + "' was changed by another meanwhile");
  remove_leftovers(directory_, manifest);
  upload_.reset();
  containers_.reset();
  return true;
}

/// Containers that the manifest doesn't name: of what was replaced, or of a try that was given up.
void RcloneReplica::remove_leftovers(const std::string& directory, const format::Manifest& manifest) {
  const std::vector<std::string> list = files_of(manifest);
  const std::set<std::string> named(list.begin(), list.end());
  std::vector<std::string> leftovers;
  for (const auto& [object, size] : listing().objects()) {
    if (!object.starts_with(directory + "/")) continue;
    const std::string file = object.substr(directory.size() + 1);
    if (file != store::manifest_file && !named.contains(file)) leftovers.push_back(file);
  }
  try {
    remote_.remove_files(directory, leftovers);
  } catch (const Error& error) {
    // The checkpoint is complete; a remote may not let anything be deleted.
    if (error.code() == Errc::interrupted) throw;
    monitor_.warning(std::string("containers that no manifest names are left: ") + error.what());
  }
}

/// Copied, and only then removed: at every moment it's there as one or the other.
void RcloneReplica::retire(const format::BaseCheckpoint& checkpoint) {
  const std::string from = store::step_name(checkpoint.step);
  listing().refresh(from);
  const format::Manifest manifest = *find(checkpoint, false).manifest;
  const std::string to = rclone_directory(checkpoint, true);
  remote_.copy_files(from, to, files_of(manifest), manifest.stored_bytes());
  remote_.put(manifest_object(to), listing().manifest_text(find(checkpoint, false)));
  listing().refresh(to);
  const RcloneCheckpoint* retired = listing().at(to);
  if (retired == nullptr || !retired->is_sound() || retired->manifest->identity() != checkpoint)
    throw Error(Errc::busy, "'" + remote_.address(to) + "' isn't what was copied to it");
  drop(from);
}

/// The manifest first: without it what is left is no checkpoint.
void RcloneReplica::drop(const std::string& directory) {
  containers_.reset();
  remote_.remove_file(manifest_object(directory));
  remote_.remove_directory(directory);
  listing().refresh(directory);
}

Removal RcloneReplica::remove(const std::vector<std::uint64_t>& steps) {
  listing_.reset();
  Removal removal;
  std::set<std::string> going;
  std::string newest_good;
  for (const auto& [directory, found] : listing().checkpoints()) {
    if (!found.retired && found.is_sound() && !found.manifest->is_marked()) newest_good = directory;
  }
  const auto refuse = [&](const std::string& directory, const std::string& why) {
    removal.refused.push_back({.step = store::parse_step_name(directory).value(),
                               .why = "'" + remote_.address(directory) + "' is not removed: " + why});
  };
  for (const std::uint64_t step : steps) {
    const std::string directory = store::step_name(step);
    const RcloneCheckpoint* found = listing().at(directory);
    if (found == nullptr) {
      refuse(directory, "it isn't there");
    } else if (directory == newest_good) {
      refuse(directory, "it's the newest good one");
    } else if (!found->manifest) {
      refuse(directory, "its manifest can't be read");
    } else {
      going.insert(directory);
    }
  }
  const auto dependent_of = [&](const std::string& directory, bool among_going) -> std::string {
    const format::BaseCheckpoint identity = listing().at(directory)->manifest->identity();
    for (const auto& [other, found] : listing().checkpoints()) {
      if (other != directory && going.contains(other) == among_going && depends_on(found, identity)) return other;
    }
    return {};
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (auto entry = going.begin(); entry != going.end();) {
      const std::string dependent = dependent_of(*entry, false);
      if (dependent.empty()) {
        ++entry;
        continue;
      }
      refuse(*entry, "'" + dependent + "' is stored against it");
      entry = going.erase(entry);
      changed = true;
    }
  }
  while (!going.empty()) {
    // Dependents before what they need; in a circle, which no sound store has, any.
    auto next = std::find_if(going.begin(), going.end(),
                             [&](const std::string& directory) { return dependent_of(directory, true).empty(); });
    if (next == going.end()) next = going.begin();
    drop(*next);
    removal.removed.push_back(store::parse_step_name(*next).value());
    going.erase(next);
  }
  return removal;
}

}  // namespace ckpt::transport
