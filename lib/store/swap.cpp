// SPDX-License-Identifier: Apache-2.0
#include "store/swap.hpp"

#include "format/damaged.hpp"
#include "os/fd.hpp"
#include "os/file_lock.hpp"
#include "os/small_file.hpp"
#include "store/bases.hpp"
#include "store/dependencies.hpp"
#include "store/pins.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <set>

namespace ckpt::store {
namespace {

constexpr std::string_view marker_prefix = "swap-";

std::string marker_path(const Store& store, std::uint64_t step) {
  return store.pending() + "/" + std::string(marker_prefix) + step_name(step);
}

/// Says, durably, that a checkpoint's directory may hold files that no manifest names.
void set_marker(const Store& store, std::uint64_t step) {
  const std::string path = marker_path(store, step);
  os::open(path, O_WRONLY | O_CREAT, 0666).close(path);
  os::sync_directory(store.pending());
}

void clear_marker(const Store& store, std::uint64_t step) { ::unlink(marker_path(store, step).c_str()); }

/// Links a file into the checkpoint's directory under a version that no manifest has named yet; returns the name.
std::string link_as_next_version(const Checkpoint& checkpoint, const std::string& from, std::uint32_t rank,
                                 std::uint32_t world_size) {
  std::uint32_t first = 0;
  for (const format::ManifestShard& shard : checkpoint.manifest.shards) {
    const auto named = parse_shard_name(shard.file);
    if (named && named->rank == rank) first = named->version + 1;
  }
  for (std::uint32_t version = first;; ++version) {
    const std::string name = shard_name({.rank = rank, .world_size = world_size, .version = version});
    if (::link(from.c_str(), (checkpoint.directory + "/" + name).c_str()) == 0) return name;
    if (errno != EEXIST) os::throw_errno(errno, "cannot link '" + checkpoint.directory + "/" + name + "'");
  }
}

/// A replacement deletes what its manifest doesn't name: that mustn't be anything else than a checkpoint's.
bool holds_only_shards(const std::string& directory) {
  const auto names = os::list_directory(directory).value_or(std::vector<std::string>{});
  return std::all_of(names.begin(), names.end(),
                     [](const std::string& name) { return name == manifest_file || parse_shard_name(name); });
}

void require_writable(const Checkpoint& checkpoint) {
  if (!checkpoint.manifest.read_only.empty()) {
    throw Error(Errc::unsupported, "'" + checkpoint.directory + "/" + manifest_file +
                                       "' can't be written anew: " + checkpoint.manifest.read_only);
  }
}

/// Other checkpoints, sets in the making or processes depend on it.
bool is_needed(const Store& store, const Checkpoint& checkpoint) {
  const format::BaseCheckpoint identity = checkpoint.manifest.identity();
  return pinned_by(read_pins(store), checkpoint.manifest, false).in_use || bases_of_sets(store).contains(identity) ||
         !dependents_of(store, identity).empty();
}

/// Retires a copy that shares the containers, so that what is stored against them can still be read. Its manifest comes
/// last: without one it's nothing, and a second try finishes it.
void keep_as_retired(const Store& store, const Checkpoint& old) {
  os::make_directory(store.retired());
  const std::string copy =
      store.retired() + "/" + step_name(old.manifest.step) + "-" + to_hex(old.manifest.id).substr(0, 8);
  os::make_directory(copy);
  const auto link = [&](const std::string& name) {
    if (::link((old.directory + "/" + name).c_str(), (copy + "/" + name).c_str()) == 0 || errno == EEXIST) return;
    os::throw_errno(errno, "cannot link '" + copy + "/" + name + "'");
  };
  for (const format::ManifestShard& shard : old.manifest.shards) link(shard.file);
  os::sync_directory(copy);
  link(manifest_file);
  os::sync_directory(copy);
  os::sync_directory(store.retired());
}

}  // namespace

std::string lock_path(const Store& store) { return store.pending() + "/lock"; }

std::optional<Checkpoint> find_to_replace(const Store& store, std::uint64_t step) {
  try {
    return store.find(step);
  } catch (const format::Damaged& damage) {
    const std::string directory = store.step_directory(step);
    const bool may_not_be_read = damage.system_errno() == EACCES || damage.system_errno() == EPERM;
    if (may_not_be_read || !holds_only_shards(directory)) throw;
    Checkpoint checkpoint{.directory = directory, .manifest = {}, .retired = false};
    checkpoint.manifest.step = step;
    return checkpoint;
  }
}

void swap_manifest(const Store& store, const Checkpoint& checkpoint, const format::Manifest& manifest) {
  require_writable(checkpoint);
  os::publish_small_file(checkpoint.directory + "/" + manifest_file, format::encode_manifest(manifest),
                         os::Publish::replace, store.scratch());
}

bool remove_unnamed(const Checkpoint& checkpoint) {
  const auto manifest = read_manifest(checkpoint.directory);
  if (!manifest) return true;
  std::set<std::string> named = {manifest_file};
  for (const format::ManifestShard& shard : manifest->shards) named.insert(shard.file);
  bool all = true;
  for (const std::string& name : os::list_directory(checkpoint.directory).value_or(std::vector<std::string>{})) {
    if (!named.contains(name)) all = ::unlink((checkpoint.directory + "/" + name).c_str()) == 0 && all;
  }
  return all;
}

namespace {

/// Deletes what was replaced; the mark goes when that's on stable storage, so that a power cut can't bring back files
/// that nothing tells of.
void finish_swap(const Store& store, const Checkpoint& checkpoint) {
  if (!remove_unnamed(checkpoint)) return;
  os::sync_directory(checkpoint.directory);
  clear_marker(store, checkpoint.manifest.step);
}

}  // namespace

Checkpoint replace_checkpoint(const Store& store, const Checkpoint& old, const std::string& set_directory,
                              const format::Manifest& manifest) {
  require_writable(old);
  const os::FileLock lock(lock_path(store), swap_patience);
  if (is_needed(store, old)) keep_as_retired(store, old);
  set_marker(store, old.manifest.step);
  Checkpoint now{.directory = old.directory, .manifest = manifest, .retired = false};
  for (format::ManifestShard& shard : now.manifest.shards) {
    shard.file = link_as_next_version(old, set_directory + "/" + shard.file, shard.rank, manifest.world_size);
  }
  os::sync_directory(old.directory);
  swap_manifest(store, old, now.manifest);
  finish_swap(store, now);
  return now;
}

void announce_swap(const Store& store, const Checkpoint& checkpoint) {
  require_writable(checkpoint);
  set_marker(store, checkpoint.manifest.step);
}

void withdraw_swap(const Store& store, const Checkpoint& checkpoint) {
  if (remove_unnamed(checkpoint)) clear_marker(store, checkpoint.manifest.step);
}

bool swap_is_announced(const Store& store, const Checkpoint& checkpoint) {
  return os::exists(marker_path(store, checkpoint.manifest.step));
}

void swap_containers(const Store& store, const Checkpoint& checkpoint, format::Manifest manifest,
                     const std::vector<NewContainer>& containers) {
  require_writable(checkpoint);
  set_marker(store, checkpoint.manifest.step);
  for (const NewContainer& container : containers) {
    manifest.shards.at(container.rank).file =
        link_as_next_version(checkpoint, container.temporary, container.rank, manifest.world_size);
  }
  os::sync_directory(checkpoint.directory);
  swap_manifest(store, checkpoint, manifest);
  finish_swap(store, checkpoint);
}

void clean_dead_swaps(const Store& store) {
  const auto names = os::list_directory(store.pending()).value_or(std::vector<std::string>{});
  const auto is_marker = [](const std::string& name) { return name.starts_with(marker_prefix); };
  if (std::none_of(names.begin(), names.end(), is_marker)) return;
  // A living one holds the lock; then the marker isn't a dead one's.
  const os::Fd lock = os::open(lock_path(store), O_RDWR | O_CREAT, 0666);
  if (!os::try_lock(lock, lock_path(store))) return;
  for (const std::string& name : names) {
    if (!is_marker(name)) continue;
    const auto step = parse_step_name(std::string_view(name).substr(marker_prefix.size()));
    if (!step) continue;
    try {
      const auto checkpoint = store.find(*step);
      if (checkpoint) {
        finish_swap(store, *checkpoint);
      } else {
        clear_marker(store, *step);
      }
    } catch (const Error&) {
      continue;  // a damaged checkpoint is for ckpt-verify to report, and no reason to refuse a save
    }
  }
}

}  // namespace ckpt::store
