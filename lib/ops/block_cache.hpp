// SPDX-License-Identifier: Apache-2.0
// Decoded blocks of a checkpoint's files that are wanted more than once: many small tensors share one, and where a read
// ends within a block the next one begins there. Also keeps the containers open that they come from.
#pragma once

#include "core/bytes.hpp"
#include "core/pipeline.hpp"
#include "format/block_decoder.hpp"
#include "ops/block_runs.hpp"
#include "ops/random_bytes.hpp"
#include "ops/stored_file.hpp"
#include "store/store.hpp"

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace ckpt::ops {

/// A file of a checkpoint's shard.
struct FileOfShard {
  std::size_t shard = 0;  ///< in the manifest's list
  std::size_t file = 0;   ///< in the shard's catalog
};

/// Thread-safe.
class BlockCache {
 public:
  /// `checkpoint` outlives this object; `bytes` is how much is kept.
  explicit BlockCache(const store::Checkpoint& checkpoint, std::uint64_t bytes = std::uint64_t{256} << 20U);

  /// Opened if it isn't. Throws as open_shard() does.
  [[nodiscard]] std::shared_ptr<const format::ContainerReader> container(std::size_t shard);
  [[nodiscard]] std::shared_ptr<const StoredFile> file(FileOfShard which);

  /// The raw bytes of the block that `place` is of in that file, checked. Several that want the same one at a time wait
  /// for the first. Throws Damaged.
  using Block = std::shared_ptr<const Bytes>;
  [[nodiscard]] Block block(FileOfShard which, const StoredFile& file, const StoredFile::Place& place);

  /// For blocks that are wanted once.
  [[nodiscard]] Pool<RunReader>& readers() { return readers_; }

 private:
  struct Open {
    std::shared_ptr<const format::ContainerReader> container;
    std::map<std::size_t, std::shared_ptr<const StoredFile>> files;
  };
  struct Slot {
    std::mutex loading;
    Block block;
  };
  using Key = std::pair<std::size_t, std::uint64_t>;  ///< shard and block
  struct Kept {
    Key key;
    std::uint64_t size = 0;
    std::shared_ptr<Slot> slot;
  };

  Open& open(std::size_t shard);
  [[nodiscard]] std::shared_ptr<Slot> slot_of(const Key& key, std::uint64_t size);

  const store::Checkpoint& checkpoint_;
  const std::uint64_t most_bytes_;
  const std::size_t most_open_;
  std::shared_ptr<const format::BaseContainers> bases_;
  Pool<format::BlockDecoder> decoders_;
  Pool<RunReader> readers_;

  std::mutex opening_;
  std::list<std::pair<std::size_t, Open>> opened_;  ///< the last used one is in front

  std::mutex mutex_;
  std::list<Kept> kept_;  ///< the last used one is in front
  std::map<Key, std::list<Kept>::iterator> by_key_;
  std::uint64_t bytes_ = 0;
};

/// A file's bytes by way of the cache. For one thread.
class CachedBytes final : public RandomBytes {
 public:
  /// `cache` outlives this object.
  CachedBytes(BlockCache& cache, FileOfShard which) : cache_(cache), which_(which), file_(cache.file(which)) {}

  [[nodiscard]] const StoredFile& file() const { return *file_; }
  [[nodiscard]] std::uint64_t size() const override { return file_->size(); }
  [[nodiscard]] ByteView at(std::uint64_t offset) override;

 private:
  BlockCache& cache_;
  FileOfShard which_;
  std::shared_ptr<const StoredFile> file_;
  StoredFile::Place place_;
  BlockCache::Block block_;
};

}  // namespace ckpt::ops
