// SPDX-License-Identifier: Apache-2.0
#include "ops/incoming.hpp"

#include "format/damaged.hpp"
#include "ops/check_container.hpp"
#include "ops/incoming_lock.hpp"
#include "os/file_lock.hpp"
#include "os/small_file.hpp"
#include "os/temporary_file.hpp"
#include "store/attempts.hpp"
#include "store/bases.hpp"
#include "store/dependencies.hpp"
#include "store/pending_set.hpp"
#include "store/retire.hpp"
#include "store/swap.hpp"

#include <ckpt/address.hpp>
#include <ckpt/error.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>

namespace ckpt::ops {
namespace {

constexpr std::string_view incoming_prefix = "sync-";
constexpr std::uint64_t write_back_step = 8U << 20U;

std::string checkpoint_directory(const store::Store& store, const format::BaseCheckpoint& checkpoint) {
  return store.pending() + "/" + std::string(incoming_prefix) + store::step_name(checkpoint.step) + "-" +
         to_hex(checkpoint.id);
}

std::string shard_directory(const store::Store& store, const transport::ReplicaShard& shard) {
  return store.pending() + "/" + std::string(incoming_prefix) + store::set_name(shard.set) + "-" +
         std::to_string(shard.rank) + "-" + to_hex(shard.digest);
}

/// Named after the very container: if it was encoded anew since the last try, that one's bytes are of no use.
std::string part_name(const std::string& file, const Digest& digest) {
  return file + "." + to_hex(digest).substr(0, 16) + ".part";
}
std::string part_name(const format::ManifestShard& shard) { return part_name(shard.file, shard.digest); }

/// What was found good by one who died then can't be written to.
os::Fd open_part(const std::string& path) {
  const auto found = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (found >= 0) return os::Fd(found);
  if (errno != EACCES || ::chmod(path.c_str(), 0644) != 0) os::throw_errno(errno, "cannot open '" + path + "'");
  return os::open(path, O_RDWR | O_NOFOLLOW);
}

/// A checkpoint's or a shard's directory, and the checkpoint came in another way.
bool is_of_committed(const store::Store& store, const std::string& name) {
  const std::size_t dash = name.find('-', incoming_prefix.size());
  if (dash == std::string::npos) return false;
  const std::string first = name.substr(incoming_prefix.size(), dash - incoming_prefix.size());
  const auto step = store::parse_step_name(first);
  const auto set = store::parse_set_name(first);
  if (!step && !set) return false;
  try {
    const auto committed = store.find(step ? *step : set->step);
    if (set) return committed && committed->manifest.world_size == set->world_size;
    return committed && to_hex(committed->manifest.id) == name.substr(dash + 1);
  } catch (const Error&) {
    return false;  // for ckpt-verify to tell
  }
}

}  // namespace

IncomingFile::IncomingFile(std::string path, std::uint64_t size)
    : path_(std::move(path)), fd_(open_part(path_)), size_(size) {
  held_ = static_cast<std::uint64_t>(os::stat_of(fd_, path_).st_size);
  if (held_ <= size_) return;
  if (::ftruncate(fd_.get(), 0) != 0) os::throw_errno(errno, "cannot truncate '" + path_ + "'");
  held_ = 0;
}

void IncomingFile::append(ByteView bytes) {
  if (bytes.size() > size_ - held_) throw Error(Errc::malformed, "more bytes came than '" + path_ + "' has");
  os::write_at(fd_, held_, bytes, path_);
  held_ += bytes.size();
  if (held_ - written_back_ < write_back_step) return;
  // So that the sync in the end has little left to do; it says what goes wrong.
  (void)::sync_file_range(fd_.get(), static_cast<off64_t>(written_back_), static_cast<off64_t>(held_ - written_back_),
                          SYNC_FILE_RANGE_WRITE);
  written_back_ = held_;
}

void IncomingFile::verify_and_sync(const Digest& digest, std::shared_ptr<const format::BaseContainers> bases,
                                   unsigned jobs, Monitor& monitor) {
  if (held_ != size_) throw Error(Errc::malformed, "only " + std::to_string(held_) + " bytes of '" + path_ + "' came");
  std::uint64_t sound = 0;
  std::string why;
  try {
    const format::ContainerReader container(path_, std::move(bases));
    const auto problems = check_sums(container.file(), container.footer(), {.jobs = jobs}, monitor);
    if (container.digest() != digest) {
      why = "it's another container than the manifest names";
    } else if (!problems.empty()) {
      sound = problems.front().begin;
      why = problems.front().detail;
    }
  } catch (const format::Damaged& damage) {
    why = damage.what();
  }
  if (!why.empty()) {
    if (::ftruncate(fd_.get(), static_cast<off_t>(sound)) != 0)
      os::throw_errno(errno, "cannot truncate '" + path_ + "'");
    throw format::Damaged(DamageKind::altered, sound, size_, "what came as '" + path_ + "' is damaged: " + why);
  }
  // What the process gives to new files, without the right to write.
  if (::fchmod(fd_.get(), os::stat_of(fd_, path_).st_mode & 0444U) != 0)
    os::throw_errno(errno, "cannot set the mode of '" + path_ + "'");
  os::sync(fd_, path_);
}

bool IncomingCheckpoint::is_there(const store::Store& store, const format::Manifest& manifest, bool retired) {
  if (!retired) {
    const auto committed = store.find(manifest.step);
    return committed && committed->manifest.id == manifest.id;
  }
  return store::find_base(store.path(), manifest.identity()).has_value();
}

IncomingCheckpoint::IncomingCheckpoint(const store::Store& store, const transport::Offer& offer)
    : store_(store),
      offer_(offer),
      manifest_(format::decode_manifest(offer.manifest, "the manifest that was offered")) {
  const auto is_named_well = [](const format::ManifestShard& shard) {
    return store::parse_shard_name(shard.file).has_value();
  };
  if (manifest_.step > max_step || !std::all_of(manifest_.shards.begin(), manifest_.shards.end(), is_named_well))
    throw Error(Errc::malformed, "the manifest that was offered has a step or a file name that no store has");
  const auto committed = store_.find(manifest_.step);
  if (committed && committed->manifest.id != manifest_.id && !offer_.retired && !offer_.replace) {
    throw Error(Errc::exists, "'" + store_.address(manifest_.step) + "' is " + to_hex(committed->manifest.id) +
                                  " here, and " + to_hex(manifest_.id) + " is to take its place")
        .with_hint("--replace lets it");
  }
  pin_bases();
  directory_ = checkpoint_directory(store_, manifest_.identity());
  lock_ = lock_incoming(directory_);
  if (::ftruncate(lock_.get(), 0) != 0) os::throw_errno(errno, "cannot write to '" + directory_ + incoming_lock + "'");
  os::write_at(lock_, 0, as_bytes(offer_.manifest), directory_ + incoming_lock);
  take_back_names();
  // What came of a container that the other side has encoded anew since.
  for (const std::string& name : os::list_directory(directory_).value_or(std::vector<std::string>{})) {
    const bool is_wanted = std::any_of(manifest_.shards.begin(), manifest_.shards.end(),
                                       [&](const format::ManifestShard& shard) { return part_name(shard) == name; });
    if (!is_wanted && name.ends_with(".part") && "/" + name != incoming_lock)
      ::unlink((directory_ + "/" + name).c_str());
  }
  for (const format::ManifestShard& shard : manifest_.shards)
    files_.emplace_back(directory_ + "/" + part_name(shard), shard.size);
  require_room();
}

/// One who died while it committed had given the containers their names.
void IncomingCheckpoint::take_back_names() {
  for (const std::string& name : os::list_directory(directory_).value_or(std::vector<std::string>{})) {
    if (!store::parse_shard_name(name)) continue;
    const std::string path = directory_ + "/" + name;
    const auto shard = std::find_if(manifest_.shards.begin(), manifest_.shards.end(),
                                    [&](const format::ManifestShard& other) { return other.file == name; });
    try {
      if (shard != manifest_.shards.end() && format::read_container_summary(path).digest == shard->digest) {
        rename_or_throw(path, directory_ + "/" + part_name(*shard));
        continue;
      }
    } catch (const format::Damaged&) {
      // comes anew
    }
    if (::unlink(path.c_str()) != 0) os::throw_errno(errno, "cannot remove '" + path + "'");
  }
}

void IncomingCheckpoint::pin_bases() {
  for (const format::BaseCheckpoint& base : manifest_.bases) {
    auto found = store::find_base(store_.path(), base);
    if (!found) {
      throw Error(Errc::not_found, "'" + store_.address(manifest_.step) + "' is stored against step " +
                                       std::to_string(base.step) + ", which isn't here");
    }
    if (store::depends_on(store_, *found, manifest_.identity()))
      throw Error(Errc::unsupported, "'" + store_.address(base.step) + "' is itself stored against '" +
                                         store_.address(manifest_.step) + "' here: each would need the other");
    auto pin = store::Pin::take(store_, *found);
    if (!pin) throw Error(Errc::busy, "'" + store_.address(base.step) + "' is being changed in this moment");
    pins_.push_back(std::move(*pin));
  }
}

void IncomingCheckpoint::require_room() const {
  std::uint64_t needed = 0;
  for (std::size_t i = 0; i < files_.size(); ++i) needed += manifest_.shards[i].size - files_[i].held();
  const std::uint64_t available = os::free_space(store_.path());
  if (needed <= available) return;
  throw Error(Errc::no_space, "store '" + store_.path() + "' has room for " + std::to_string(available) +
                                  " bytes, and " + std::to_string(needed) + " are to come")
      .with_hint("free some space; what has arrived is kept for the next try");
}

std::vector<std::uint64_t> IncomingCheckpoint::held() const {
  std::vector<std::uint64_t> held;
  for (const IncomingFile& file : files_) held.push_back(file.held());
  return held;
}

void IncomingCheckpoint::append(std::uint32_t shard, ByteView bytes) {
  if (shard >= files_.size()) throw Error(Errc::malformed, "bytes came for a shard that the checkpoint hasn't got");
  files_[shard].append(bytes);
}

void IncomingCheckpoint::abandon() { os::remove_directory(directory_); }

/// Replicas of one checkpoint refer to lower ranks only: so they never lead in a circle.
void IncomingCheckpoint::require_lower_rank(std::uint32_t rank, const format::BlockRecord& block) const {
  if (block.base->rank < rank && block.base->rank < files_.size()) return;
  throw format::Damaged(DamageKind::altered, block.place, block.place + block.stored_size,
                        "a block of '" + store_.address(manifest_.step) + "' leads back to its own checkpoint");
}

/// The manifest says of the container what it says of itself.
void IncomingCheckpoint::require_agreement(const format::ContainerReader& container,
                                           const format::ManifestShard& shard) const {
  const format::ShardInfo& info = container.catalog().shard;
  const bool same = container.index().root == shard.root && info.rank == shard.rank && info.step == manifest_.step &&
                    info.world_size == manifest_.world_size;
  const auto& table = container.catalog().bases;
  std::vector<bool> named;  // of the container's bases, which the manifest names
  for (const format::BaseCheckpoint& base : table) {
    named.push_back(base == manifest_.identity() ||
                    std::find(manifest_.bases.begin(), manifest_.bases.end(), base) != manifest_.bases.end());
  }
  const auto has_base = [&](const format::BlockRecord& block) {
    return !block.base || block.base->checkpoint == format::own_shard || named.at(block.base->checkpoint);
  };
  const auto& blocks = container.index().blocks;
  if (same && std::all_of(blocks.begin(), blocks.end(), has_base)) return;
  throw Error(Errc::malformed,
              "what came as '" + container.path() + "' is another container than its manifest describes");
}

/// Here a base may be stored in another way than there, in longer chains.
void IncomingCheckpoint::require_short_chains(const format::ContainerReader& container,
                                              const StoredBases& bases) const {
  const auto& table = container.catalog().bases;
  for (const format::BlockRecord& block : container.index().blocks) {
    if (!block.base || block.base->checkpoint == format::own_shard) continue;
    const format::BaseCheckpoint& base = table.at(block.base->checkpoint);
    if (base == manifest_.identity()) {
      require_lower_rank(container.catalog().shard.rank, block);
      continue;
    }
    const auto stored = bases.open(base, block.base->rank);
    const auto& blocks = stored->index().blocks;
    if (block.base->block < blocks.size() && blocks[block.base->block].depth < block.depth) continue;
    throw Error(Errc::unsupported, "'" + store_.address(base.step) + "' is stored in longer chains here than '" +
                                       store_.address(manifest_.step) + "', which needs it, allows")
        .with_hint("ckpt-compress --rebase '" + store_.address(base.step) + "' makes them short");
  }
}

void IncomingCheckpoint::commit(unsigned jobs, Monitor& monitor) {
  if (!lock_.valid()) throw Error(Errc::malformed, "a commit of nothing");
  const auto bases = std::make_shared<StoredBases>(store_.path());
  for (std::size_t i = 0; i < files_.size(); ++i)
    files_[i].verify_and_sync(manifest_.shards[i].digest, bases, jobs, monitor);
  for (std::size_t i = 0; i < files_.size(); ++i) {
    const format::ContainerReader container(files_[i].path());
    require_agreement(container, manifest_.shards[i]);
    require_short_chains(container, *bases);
  }
  for (std::size_t i = 0; i < files_.size(); ++i)
    rename_or_throw(files_[i].path(), directory_ + "/" + manifest_.shards[i].file);
  os::sync(lock_, directory_);
  rename_or_throw(directory_ + incoming_lock, directory_ + "/" + store::manifest_file);
  os::sync_directory(directory_);
  publish();
  lock_ = {};
}

void IncomingCheckpoint::publish() {
  if (offer_.retired) {
    (void)store::retire_directory(store_, directory_, manifest_.step, to_hex(manifest_.id).substr(0, 8));
    os::sync_directory(store_.retired());
    os::sync_directory(store_.pending());
    return;
  }
  const std::string target = store_.step_directory(manifest_.step);
  if (::rename(directory_.c_str(), target.c_str()) == 0) {
    os::sync_directory(store_.path());
    os::sync_directory(store_.pending());
    return;
  }
  if (errno != EEXIST && errno != ENOTEMPTY)
    os::throw_errno(errno, "cannot rename '" + directory_ + "' to '" + target + "'");
  const auto committed = store::find_to_replace(store_, manifest_.step);
  if (!committed) throw Error(Errc::busy, "'" + target + "' keeps changing");
  if (committed->manifest.id != manifest_.id) {
    if (!offer_.replace) throw Error(Errc::exists, "'" + store_.address(manifest_.step) + "' was saved here meanwhile");
    (void)store::replace_checkpoint(store_, *committed, directory_, manifest_);
  }
  os::remove_directory(directory_);
}

bool IncomingShard::is_there(const store::Store& store, const transport::ReplicaShard& shard) {
  const auto require_same = [&](bool same) {
    if (same) return true;
    throw Error(Errc::exists,
                "'" + store.address(shard.set.step) + "' holds other content of rank " + std::to_string(shard.rank));
  };
  if (const auto committed = store.find(shard.set.step)) {
    const auto& shards = committed->manifest.shards;
    return require_same(committed->manifest.world_size == shard.set.world_size && shards.size() > shard.rank &&
                        shards[shard.rank].root == shard.root);
  }
  const auto files = store::pending_set(store, shard.set).files;
  const auto own = files.find(shard.rank);
  if (own == files.end()) return false;
  const std::string path = store.pending() + "/" + store::set_name(shard.set) + "/" + own->second;
  return require_same(format::read_container_summary(path).root == shard.root);
}

IncomingShard::IncomingShard(const store::Store& store, transport::ReplicaShard shard)
    : store_(store), shard_(std::move(shard)), directory_(shard_directory(store_, shard_)) {
  store::open_attempt(store_, shard_.set.attempt);
  lock_ = lock_incoming(directory_);
  files_.emplace_back(directory_ + "/" + part_name(shard_.file, shard_.digest), shard_.size);
}

bool IncomingShard::commit(unsigned jobs, Monitor& monitor) {
  files_.front().verify_and_sync(shard_.digest, std::make_shared<StoredBases>(store_.path()), jobs, monitor);
  const std::string& path = files_.front().path();
  const format::ContainerSummary container = format::read_container_summary(path);
  const format::ShardInfo& info = container.catalog.shard;
  if (container.root != shard_.root || info.step != shard_.set.step || info.rank != shard_.rank ||
      info.world_size != shard_.set.world_size || info.attempt != shard_.set.attempt) {
    throw format::Damaged(DamageKind::altered, 0, 0, "what came as '" + path + "' is a shard of another set");
  }
  (void)store::publish_shard(
      store_, {.set = shard_.set, .rank = shard_.rank, .root = container.root, .temporary = path, .replace = false});
  os::remove_directory(directory_);
  lock_ = {};
  return store::commit_if_complete(store_, {.set = shard_.set, .timings = {}}).has_value();
}

void clean_incoming(const store::Store& store) {
  std::optional<std::int64_t> now;
  for (const std::string& name : os::list_directory(store.pending()).value_or(std::vector<std::string>{})) {
    if (!name.starts_with(incoming_prefix)) continue;
    const std::string directory = store.pending() + "/" + name;
    if (remove_if_never_named(directory)) continue;
    const std::string lock_path = directory + incoming_lock;
    const auto lock = os::open_if_exists(lock_path, O_RDWR | O_NOFOLLOW);
    if (lock && !os::try_lock(*lock, lock_path)) continue;
    const auto status = os::stat_path(directory);
    if (!status) continue;
    if (is_of_committed(store, name)) {
      os::remove_directory(directory);
      continue;
    }
    if (!now) now = os::file_system_time(store.scratch());
    if (status->st_mtime + os::dead_after < *now) os::remove_directory(directory);
  }
}

}  // namespace ckpt::ops
