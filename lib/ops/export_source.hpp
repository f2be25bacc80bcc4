// SPDX-License-Identifier: Apache-2.0
// Reads the tensors of an export, whichever shard and file they're in; keeps the file at hand open.
#pragma once

#include "core/digest.hpp"
#include "ops/export_layout.hpp"
#include "ops/open_shard.hpp"
#include "ops/stored_file.hpp"

#include <ckpt/monitor.hpp>

#include <functional>
#include <optional>

namespace ckpt::ops {

/// Not thread-safe. `checkpoint` and `monitor` outlive it.
class ExportSource {
 public:
  ExportSource(const store::Checkpoint& checkpoint, unsigned jobs, const Monitor& monitor)
      : shards_(checkpoint), jobs_(jobs), monitor_(monitor) {}

  [[nodiscard]] ShardReaders& shards() { return shards_; }

  /// The contiguous bytes, in order.
  void read(const ExportItem& item, const std::function<void(ByteView)>& consume);

  /// True if both tensors have the same type, shape, place in a whole and values. Reads them only where the blocks'
  /// hashes don't say so.
  [[nodiscard]] bool are_replicas(const ExportItem& a, const ExportItem& b);

 private:
  struct AtHand {
    std::size_t shard = 0;
    std::size_t file = 0;
    std::optional<StoredFile> stored;
    std::optional<BlockCursor> cursor;
  };

  BlockCursor& open(const ExportItem& item);
  [[nodiscard]] bool have_same_blocks(const ExportItem& a, const ExportItem& b);
  [[nodiscard]] Digest digest_of(const ExportItem& item);

  ShardReaders shards_;
  unsigned jobs_;
  const Monitor& monitor_;
  AtHand at_hand_;
};

}  // namespace ckpt::ops
