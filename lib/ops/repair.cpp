// SPDX-License-Identifier: Apache-2.0
#include "ops/repair.hpp"

#include "format/constants.hpp"
#include "format/damaged.hpp"
#include "ops/check_container.hpp"
#include "ops/describe_hit.hpp"
#include "ops/mend.hpp"
#include "ops/stored_bases.hpp"
#include "os/direct_writer.hpp"
#include "os/file_lock.hpp"
#include "os/small_file.hpp"
#include "os/temporary_file.hpp"
#include "store/swap.hpp"

#include <algorithm>

namespace ckpt::ops {
namespace {

/// Writes a copy with some bits turned over, synced.
void write_mended(const os::AdaptiveReader& file, const std::vector<FlippedBit>& flips, const os::TemporaryFile& to) {
  os::DirectWriter writer(to.share(), to.path(), [](std::span<const std::byte>) {});
  os::AlignedBuffer buffer;
  for (std::uint64_t at = 0; at < file.size(); at += check_unit) {
    const std::uint64_t size = std::min(check_unit, file.size() - at);
    const ByteView unit = file.read(at, size, buffer);
    if (unit.size() != size)
      throw format::Damaged(DamageKind::truncated, at, at + size, "'" + file.path() + "' became shorter");
    Bytes copy(unit.begin(), unit.end());
    for (const FlippedBit& flip : flips) {
      if (flip.byte >= at && flip.byte < at + size) copy[flip.byte - at] ^= static_cast<std::byte>(1U << flip.bit);
    }
    writer.append(copy);
  }
  (void)writer.finish();
}

/// Mends a sealed text file in one step; its directory is synced.
void repair_sealed(const std::string& path, const std::string& scratch, Damage& found) {
  const auto text = os::read_small_file(path, format::max_manifest_size);
  const auto flip = text ? find_flipped_bit(*text) : std::nullopt;
  if (!flip) {
    found.repair = "no single bit makes it whole";
    return;
  }
  std::string mended = *text;
  mended[flip->byte] = static_cast<char>(static_cast<unsigned char>(mended[flip->byte]) ^ (1U << flip->bit));
  os::publish_small_file(path, mended, os::Publish::replace, scratch);
  found.repaired = true;
  found.repair = "byte " + std::to_string(flip->byte) + ", bit " + std::to_string(flip->bit);
}

}  // namespace

RepairResult repair_shard(const store::Store& store, const store::Checkpoint& checkpoint,
                          const format::ManifestShard& shard, unsigned jobs, Monitor& monitor) {
  const store::Store writable = store::Store::open_for_writing(store.path(), false);
  const os::FileLock lock(store::lock_path(writable), store::swap_patience);
  // Another repair may have been faster: only under the lock the manifest stays what it is.
  const auto manifest = store::read_manifest(checkpoint.directory);
  if (!manifest || manifest->id != checkpoint.manifest.id || manifest->shards.at(shard.rank).file != shard.file) {
    return {.repaired = false, .what = "it was replaced meanwhile: verify again"};
  }
  const store::Checkpoint now{.directory = checkpoint.directory, .manifest = *manifest, .retired = checkpoint.retired};
  const os::AdaptiveReader file(checkpoint.shard_path(shard));
  const Mending mending = find_flipped_bits(file, jobs, monitor);
  if (!mending.failure.empty()) return {.repaired = false, .what = mending.failure};
  if (mending.flips.empty())
    return {.repaired = false, .what = "no bit is wrong: the damage was there when the sums were made"};

  const os::TemporaryFile temporary(writable.scratch(), 0444);
  write_mended(file, mending.flips, temporary);
  const format::ContainerReader mended(temporary.path(), bases_for(checkpoint));
  if (mended.digest() != shard.digest)
    return {.repaired = false, .what = "the mended container is not the one that was saved"};
  auto problems = check_sums(mended.file(), mended.footer(), {.jobs = jobs}, monitor);
  if (problems.empty()) problems = check_blocks(mended, {.jobs = jobs}, monitor);
  if (!problems.empty()) return {.repaired = false, .what = "more is wrong: " + problems.front().detail};

  format::Manifest swapped = now.manifest;
  swapped.shards.at(shard.rank) = shard;
  store::swap_containers(writable, now, std::move(swapped), {{.rank = shard.rank, .temporary = temporary.path()}});
  std::string what;
  for (const FlippedBit& flip : mending.flips) {
    what += (what.empty() ? "" : "; ") + describe_bit(mended, flip.byte, flip.bit);
  }
  return {.repaired = true, .what = what};
}

void repair_manifest(const store::Store& store, std::uint64_t step, Damage& found) {
  try {
    const store::Store writable = store::Store::open_for_writing(store.path(), false);
    const os::FileLock lock(store::lock_path(writable), store::swap_patience);
    repair_sealed(store.step_directory(step) + "/" + store::manifest_file, store.scratch(), found);
  } catch (const Error& error) {
    found.repair = error.what();
  }
}

void repair_store_description(const std::string& store_path, Damage& found) {
  try {
    repair_sealed(store_path + "/" + store::description_file, store_path, found);
  } catch (const Error& error) {
    found.repair = error.what();
  }
}

}  // namespace ckpt::ops
