// SPDX-License-Identifier: Apache-2.0
#include "ops/repair_from_replicas.hpp"

#include "format/constants.hpp"
#include "format/container_writer.hpp"
#include "format/damaged.hpp"
#include "ops/check_container.hpp"
#include "os/direct_writer.hpp"
#include "os/file_copy.hpp"
#include "os/file_lock.hpp"
#include "os/small_file.hpp"
#include "os/temporary_file.hpp"
#include "store/bases.hpp"
#include "store/swap.hpp"

#include <algorithm>
#include <optional>

namespace ckpt::ops {
namespace {

using format::ContainerReader;

/// Blocks that can't be decoded, or lie where a sum says that something is wrong.
std::vector<bool> find_damaged(const ContainerReader& container, unsigned jobs, Monitor& monitor) {
  auto problems = check_blocks(container, {.jobs = jobs}, monitor);
  const auto in_sums = check_sums(container.file(), container.footer(), {.jobs = jobs}, monitor);
  problems.insert(problems.end(), in_sums.begin(), in_sums.end());
  const auto& blocks = container.index().blocks;
  std::vector<bool> damaged(blocks.size());
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    damaged[b] = std::any_of(problems.begin(), problems.end(), [&](const Problem& problem) {
      return problem.begin < blocks[b].place + blocks[b].stored_size && problem.end > blocks[b].place;
    });
  }
  return damaged;
}

struct Mended {
  std::uint64_t blocks = 0;
  std::vector<format::BaseCheckpoint> bases;
};

Mended write_mended(const ContainerReader& old, const std::vector<bool>& damaged, const os::TemporaryFile& to,
                    Monitor& monitor) {
  Mended mended{.blocks = 0, .bases = old.catalog().bases};
  format::ContainerWriter writer(to.share(), to.path(), old.catalog(), format::incompat_typed | format::incompat_bases);
  os::AlignedBuffer buffer;
  for (std::uint64_t b = 0; b < damaged.size(); ++b) {
    const format::BlockRecord& record = old.index().blocks[b];
    if (monitor.stop_requested()) throw Error(Errc::interrupted, "interrupted");
    if (!damaged[b]) {
      const ByteView stored = format::read_stored_range(old, record.place, record.stored_size, buffer);
      writer.add(
          {.codec = record.codec, .stored = stored, .hash = record.hash, .depth = record.depth, .base = record.base});
      continue;
    }
    const auto raw = old.substitute(b);
    if (!raw || raw->size() != record.raw_size || xxh3_128(*raw) != record.hash)
      throw format::Damaged(DamageKind::altered, record.place, record.place + record.stored_size,
                            "no replica has block " + std::to_string(b) + " of it");
    writer.add({.stored = *raw, .hash = record.hash});
    ++mended.blocks;
  }
  (void)writer.finish();
  return mended;
}

/// A replica's container as it is.
Mended write_fetched(const store::Checkpoint& checkpoint, std::uint32_t rank, const ReplicaBlocks& replicas,
                     const os::TemporaryFile& to) {
  const ReplicaBlocks::Fetched fetched = replicas.fetch(checkpoint.manifest.identity(), rank);
  for (const format::BaseCheckpoint& base : fetched.bases) {
    if (store::find_base(store::store_path_of(checkpoint), base)) continue;
    throw format::Damaged(DamageKind::missing, 0, 0,
                          "the replica's container needs step " + std::to_string(base.step) + ", which isn't here");
  }
  const os::Fd file = to.share();
  (void)os::copy_content(fetched.file, fetched.path, file, to.path(), fetched.shard.size, [](std::uint64_t) {});
  os::sync(file, to.path());
  return {.blocks = 0, .bases = fetched.bases};
}

std::shared_ptr<const ContainerReader> open_if_possible(const store::Checkpoint& checkpoint, std::uint32_t rank,
                                                        const ReplicaBlocks& replicas) {
  try {
    return replicas.open_local(checkpoint, rank);
  } catch (const format::Damaged&) {
    return nullptr;
  }
}

std::optional<format::ContainerSummary> summary_if_sound(const std::string& path) {
  try {
    return format::read_container_summary(path);
  } catch (const Error& error) {
    if (error.code() != Errc::damaged && error.code() != Errc::io && error.code() != Errc::not_found) throw;
    return std::nullopt;
  }
}

}  // namespace

RepairResult repair_from_replicas(const store::Store& store, const store::Checkpoint& checkpoint,
                                  const format::ManifestShard& shard, const ReplicaBlocks& replicas, unsigned jobs,
                                  Monitor& monitor) {
  const store::Store writable = store::Store::open_for_writing(store.path(), false);
  const os::FileLock lock(store::lock_path(writable), store::swap_patience);
  const auto manifest = store::read_manifest(checkpoint.directory);
  if (!manifest || manifest->id != checkpoint.manifest.id || manifest->shards.at(shard.rank).file != shard.file)
    return {.repaired = false, .what = "it was replaced meanwhile: verify again"};
  const store::Checkpoint now{.directory = checkpoint.directory, .manifest = *manifest, .retired = checkpoint.retired};
  const os::TemporaryFile temporary(writable.scratch(), 0444);
  Mended mended;
  std::string what;
  try {
    if (const auto old = open_if_possible(now, shard.rank, replicas)) {
      // Decoded without help, so that what needs help is found.
      const ContainerReader alone(old->path(), bases_for(now));
      mended = write_mended(*old, find_damaged(alone, jobs, monitor), temporary, monitor);
      what = std::to_string(mended.blocks) + (mended.blocks == 1 ? " block" : " blocks") + " from a replica";
    } else {
      mended = write_fetched(now, shard.rank, replicas, temporary);
      what = "the whole shard from a replica";
    }
  } catch (const format::Damaged& damage) {
    return {.repaired = false, .what = damage.what()};
  }
  const ContainerReader fresh(temporary.path(), bases_for(now));
  if (fresh.index().root != shard.root) return {.repaired = false, .what = "what came is other content"};
  auto problems = check_sums(fresh.file(), fresh.footer(), {.jobs = jobs}, monitor);
  if (problems.empty()) problems = check_blocks(fresh, {.jobs = jobs}, monitor);
  if (!problems.empty()) return {.repaired = false, .what = "more is wrong: " + problems.front().detail};

  format::Manifest swapped = now.manifest;
  swapped.shards.at(shard.rank).size = fresh.footer().file_size;
  swapped.shards.at(shard.rank).digest = fresh.digest();
  for (const format::BaseCheckpoint& base : mended.bases) (void)format::row_of(swapped.bases, base);
  store::swap_containers(writable, now, std::move(swapped), {{.rank = shard.rank, .temporary = temporary.path()}});
  return {.repaired = true, .what = what};
}

void repair_manifest_from_replicas(const store::Store& store, std::uint64_t step, const ReplicaBlocks& replicas,
                                   Damage& found) {
  try {
    auto manifest = replicas.manifest_of(step);
    if (!manifest) {
      found.repair = "no replica has the step";
      return;
    }
    const store::Store writable = store::Store::open_for_writing(store.path(), false);
    const os::FileLock lock(store::lock_path(writable), store::swap_patience);
    const std::string directory = store.step_directory(step);
    // Which of the containers here hold that content; what is missing is for the repair of the shards.
    std::size_t known = 0;
    for (const std::string& name : os::list_directory(directory).value_or(std::vector<std::string>{})) {
      const auto named = store::parse_shard_name(name);
      if (!named || named->rank >= manifest->shards.size()) continue;
      const auto container = summary_if_sound(directory + "/" + name);
      format::ManifestShard& shard = manifest->shards[named->rank];
      if (!container) continue;
      if (container->root != shard.root) {
        found.repair = "the replica has other content than '" + name + "'";
        return;
      }
      shard.file = name;
      shard.size = container->footer.file_size;
      shard.digest = container->digest;
      for (const format::BaseCheckpoint& base : container->bases) (void)format::row_of(manifest->bases, base);
      ++known;
    }
    if (known == 0) {
      found.repair = "no container here holds what the replica's manifest says";
      return;
    }
    os::publish_small_file(directory + "/" + store::manifest_file, format::encode_manifest(*manifest),
                           os::Publish::replace, writable.scratch());
    found.repaired = true;
    found.repair = "the manifest from a replica";
  } catch (const Error& error) {
    if (error.code() == Errc::interrupted) throw;
    found.repair = error.what();
  }
}

}  // namespace ckpt::ops
