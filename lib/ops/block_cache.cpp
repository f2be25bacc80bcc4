// SPDX-License-Identifier: Apache-2.0
#include "ops/block_cache.hpp"

#include "ops/open_shard.hpp"
#include "ops/stored_bases.hpp"

#include <sys/resource.h>
#include <algorithm>

namespace ckpt::ops {
namespace {

/// A quarter of the descriptors that this process may have: the rest is its own. Tensors that are cut over more shards
/// than that make each of them be opened once a tensor.
std::size_t open_at_most() {
  constexpr std::size_t least = 16;
  constexpr std::size_t most = 4096;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return least;
  return std::clamp(static_cast<std::size_t>(std::min<rlim_t>(limit.rlim_cur, 4 * most)) / 4, least, most);
}

}  // namespace

BlockCache::BlockCache(const store::Checkpoint& checkpoint, std::uint64_t bytes)
    : checkpoint_(checkpoint), most_bytes_(bytes), most_open_(open_at_most()), bases_(bases_for(checkpoint)) {}

BlockCache::Open& BlockCache::open(std::size_t shard) {
  const auto found = std::find_if(opened_.begin(), opened_.end(), [&](const auto& o) { return o.first == shard; });
  if (found != opened_.end()) {
    opened_.splice(opened_.begin(), opened_, found);
  } else {
    Open opened{.container = open_shard(checkpoint_, shard, bases_), .files = {}};
    opened_.emplace_front(shard, std::move(opened));
    if (opened_.size() > most_open_) opened_.pop_back();
  }
  return opened_.front().second;
}

std::shared_ptr<const format::ContainerReader> BlockCache::container(std::size_t shard) {
  const std::lock_guard lock(opening_);
  return open(shard).container;
}

std::shared_ptr<const StoredFile> BlockCache::file(FileOfShard which) {
  const std::lock_guard lock(opening_);
  Open& shard = open(which.shard);
  auto& file = shard.files[which.file];
  if (file == nullptr) {
    file = std::make_shared<const StoredFile>(shard.container, shard.container->catalog().files.at(which.file));
  }
  return file;
}

std::shared_ptr<BlockCache::Slot> BlockCache::slot_of(const Key& key, std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  if (const auto known = by_key_.find(key); known != by_key_.end()) {
    kept_.splice(kept_.begin(), kept_, known->second);
    return kept_.front().slot;
  }
  kept_.push_front({.key = key, .size = size, .slot = std::make_shared<Slot>()});
  by_key_[key] = kept_.begin();
  bytes_ += size;
  while (bytes_ > most_bytes_ && kept_.size() > 1) {
    bytes_ -= kept_.back().size;
    by_key_.erase(kept_.back().key);
    kept_.pop_back();
  }
  return kept_.front().slot;
}

BlockCache::Block BlockCache::block(FileOfShard which, const StoredFile& file, const StoredFile::Place& place) {
  const auto slot = slot_of({which.shard, place.block}, place.end - place.begin);
  const std::lock_guard lock(slot->loading);
  if (slot->block == nullptr) {
    auto decoder = decoders_.take();
    const ByteView raw = decoder->read(file.container(), place.block);
    slot->block = std::make_shared<const Bytes>(raw.begin(), raw.end());
  }
  return slot->block;
}

ByteView CachedBytes::at(std::uint64_t offset) {
  if (block_ == nullptr || offset < place_.begin || offset >= place_.end) {
    const StoredFile::Place place = file_->place_of(offset);
    block_ = cache_.block(which_, *file_, place);
    place_ = place;
  }
  return ByteView(*block_).subspan(offset - place_.begin);
}

}  // namespace ckpt::ops
