// SPDX-License-Identifier: Apache-2.0
#include "ops/local_replica.hpp"

#include "format/constants.hpp"
#include "format/damaged.hpp"
#include "ops/open_shard.hpp"
#include "ops/stored_file.hpp"
#include "os/small_file.hpp"
#include "store/bases.hpp"
#include "store/leftovers.hpp"
#include "store/pending_set.hpp"
#include "store/retire.hpp"
#include "store/store.hpp"

#include <ckpt/error.hpp>
#include <ckpt/prune.hpp>

#include <fcntl.h>
#include <algorithm>

namespace ckpt::ops {
namespace {

using transport::Inventory;

/// One for each destination that is being sent to, about.
constexpr std::size_t most_forms = 8;

/// What can't be read here can't be copied, and is for ckpt-verify to tell.
std::optional<format::Manifest> sound_manifest(const std::string& directory, Monitor& monitor) {
  try {
    return store::read_manifest(directory);
  } catch (const Error& error) {
    if (error.code() != Errc::damaged) throw;
    monitor.warning(error.what());
    return std::nullopt;
  }
}

}  // namespace

LocalReplica::LocalReplica(std::string path, unsigned jobs, Monitor& monitor)
    : path_(std::move(path)), jobs_(jobs), monitor_(monitor) {}

Inventory LocalReplica::inventory() {
  Inventory inventory;
  if (!os::exists(path_ + "/" + store::description_file)) return inventory;
  inventory.is_store = true;
  const store::Store store = store::Store::open(path_);
  for (const std::uint64_t step : store.steps()) {
    const auto manifest = sound_manifest(store.step_directory(step), monitor_);
    if (manifest)
      inventory.checkpoints.push_back(transport::describe(*manifest, false));
    else if (os::exists(store.step_directory(step)))  // else it was removed in this moment
      inventory.unreadable.push_back(step);
  }
  for (const std::string& directory : store.retired_directories()) {
    const auto manifest = sound_manifest(directory, monitor_);
    if (manifest) inventory.checkpoints.push_back(transport::describe(*manifest, true));
  }
  for (const store::SetContent& set : store::pending_sets(store)) {
    for (const auto& [rank, file] : set.files) {
      try {
        const auto container =
            format::read_container_summary(store.pending() + "/" + store::set_name(set.key) + "/" + file);
        inventory.shards.push_back({.set = set.key,
                                    .rank = rank,
                                    .file = file,
                                    .size = container.footer.file_size,
                                    .digest = container.digest,
                                    .root = container.root});
      } catch (const Error& error) {
        if (error.code() != Errc::not_found && error.code() != Errc::damaged) throw;  // committed in this moment
      }
    }
  }
  return inventory;
}

store::Checkpoint LocalReplica::find(const format::BaseCheckpoint& checkpoint, bool retired) const {
  const store::Store store = store::Store::open(path_);
  if (!retired) {
    auto found = store.find(checkpoint.step);
    if (found && found->manifest.id == checkpoint.id) return std::move(*found);
  } else if (auto found = store::find_base(path_, checkpoint)) {
    return std::move(*found);
  }
  throw Error(Errc::not_found, "'" + store.address(checkpoint.step) + "' is gone, or has other content");
}

std::string LocalReplica::manifest(const format::BaseCheckpoint& checkpoint, bool retired) {
  const std::string path = find(checkpoint, retired).directory + "/" + store::manifest_file;
  auto text = os::read_small_file(path, format::max_manifest_size);
  if (!text) throw Error(Errc::not_found, "'" + path + "' is gone");
  return std::move(*text);
}

void LocalReplica::open_file(const transport::FileName& file) {
  if (open_file_ == file) return;
  if (!store::parse_shard_name(file.file)) throw Error(Errc::malformed, "'" + file.file + "' is no shard's name");
  open_file_.reset();
  const store::Store store = store::Store::open(path_);
  std::string directory = store.pending() + "/" + store::set_name(file.set);
  if (file.checkpoint) {
    const store::Checkpoint found = find(*file.checkpoint, file.retired);
    reading_ = store::Pin::try_to_hold(store, found);
    directory = found.directory;
  }
  open_path_ = directory + "/" + file.file;
  open_fd_ = os::open(open_path_, O_RDONLY | O_NOFOLLOW);
  open_file_ = file;
}

std::optional<std::string> LocalReplica::other_form(const transport::FormRequest& request) {
  auto form = make_other_form(path_, request, jobs_, monitor_);
  if (!form) return std::nullopt;
  if (other_forms_.size() == most_forms) other_forms_.erase(other_forms_.begin());
  other_forms_.push_back(std::move(*form));
  return format::encode_manifest(other_forms_.back().manifest);
}

void LocalReplica::read_form(const transport::FileName& file, std::uint64_t offset, std::span<std::byte> into) const {
  for (const OtherForm& form : other_forms_) {
    if (form.has(*file.form)) return form.read(*file.form, offset, into);
  }
  throw Error(Errc::not_found, "that form of '" + file.file + "' isn't kept any more");
}

void LocalReplica::read(const transport::FileName& file, std::uint64_t offset, std::span<std::byte> into) {
  if (file.form) return read_form(file, offset, into);
  open_file(file);
  if (os::read_at(open_fd_, offset, into, open_path_) == into.size()) return;
  throw format::Damaged(DamageKind::truncated, offset, offset + into.size(), "'" + open_path_ + "' ends early");
}

Bytes LocalReplica::read_block(const format::BaseCheckpoint& checkpoint, std::uint32_t rank, std::uint64_t block) {
  if (container_ == nullptr || container_of_ != checkpoint || container_rank_ != rank) {
    const auto found = store::find_base(path_, checkpoint);
    if (!found || rank >= found->manifest.shards.size())
      throw Error(Errc::not_found, "'" + path_ + "' has no such checkpoint or rank");
    container_ = open_shard(*found, rank);
    container_of_ = checkpoint;
    container_rank_ = rank;
  }
  if (block >= container_->index().blocks.size()) throw Error(Errc::not_found, "the shard has no such block");
  Bytes bytes;
  stream_blocks(*container_, block, 1, 1, monitor_,
                [&](std::uint64_t, ByteView raw) { bytes.assign(raw.begin(), raw.end()); });
  return bytes;
}

std::optional<std::vector<std::uint64_t>> LocalReplica::prepare(const transport::Offer& offer) {
  checkpoint_.reset();
  shard_.reset();
  const store::Store store = store::Store::open_for_writing(path_, true);
  store::clean_leftovers(store);
  clean_incoming(store);
  const format::Manifest manifest = format::decode_manifest(offer.manifest, "the manifest that was offered");
  if (IncomingCheckpoint::is_there(store, manifest, offer.retired)) return std::nullopt;
  checkpoint_.emplace(store, offer);
  // Another sync may have finished it while this one waited.
  if (IncomingCheckpoint::is_there(store, manifest, offer.retired)) {
    checkpoint_->abandon();
    checkpoint_.reset();
    return std::nullopt;
  }
  return checkpoint_->held();
}

std::optional<std::uint64_t> LocalReplica::prepare_shard(const transport::ReplicaShard& shard) {
  checkpoint_.reset();
  shard_.reset();
  const store::Store store = store::Store::open_for_writing(path_, true);
  if (IncomingShard::is_there(store, shard)) {
    (void)store::commit_if_complete(store, {.set = shard.set, .timings = {}});
    return std::nullopt;
  }
  shard_.emplace(store, shard);
  return shard_->held();
}

void LocalReplica::write(std::uint32_t shard, ByteView bytes) {
  if (checkpoint_) return checkpoint_->append(shard, bytes);
  if (!shard_ || shard != 0) throw Error(Errc::malformed, "bytes came for nothing that was announced");
  shard_->append(bytes);
}

bool LocalReplica::commit() {
  if (checkpoint_) {
    checkpoint_->commit(jobs_, monitor_);
    checkpoint_.reset();
    return true;
  }
  if (!shard_) throw Error(Errc::malformed, "a commit of nothing");
  const bool complete = shard_->commit(jobs_, monitor_);
  shard_.reset();
  return complete;
}

void LocalReplica::retire(const format::BaseCheckpoint& checkpoint) {
  const store::Store store = store::Store::open_for_writing(path_, false);
  const std::string directory = find(checkpoint, false).directory;
  if (!store::retire_directory(store, directory, checkpoint.step, to_hex(checkpoint.id).substr(0, 8))) return;
  os::sync_directory(store.retired());
  os::sync_directory(store.path());
}

transport::Removal LocalReplica::remove(const std::vector<std::uint64_t>& steps) {
  PruneOptions options;
  options.store = path_;
  options.policy.remove = steps;
  options.jobs = jobs_;
  const PruneReport report = prune(options, monitor_);
  transport::Removal removal;
  for (const PruneFailure& failure : report.failures)
    removal.refused.push_back({.step = failure.step, .why = failure.message});
  for (const std::uint64_t step : steps) {
    const auto stays = [&](const transport::Removal::Refused& refused) { return refused.step == step; };
    if (std::none_of(removal.refused.begin(), removal.refused.end(), stays)) removal.removed.push_back(step);
  }
  return removal;
}

}  // namespace ckpt::ops
