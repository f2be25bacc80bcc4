// SPDX-License-Identifier: Apache-2.0
// The tensors of a whole checkpoint, whichever shards and files hold their parts: listed, found by name, and read a box
// at a time into the caller's memory.
#pragma once

#include "ops/block_cache.hpp"
#include "ops/box.hpp"
#include "ops/global_index.hpp"
#include "ops/part_reader.hpp"
#include "store/store.hpp"

#include <ckpt/monitor.hpp>
#include <ckpt/restore.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt::ops {

/// Thread-safe. What was opened and decoded for one read is there for the next: reading all tensors in their order
/// decodes each block about once. Who reads for long holds a pin on the checkpoint.
class GlobalTensors {
 public:
  /// Looks at the catalogs of all shards, or of those that `select` names. Throws Damaged; not_found for a rank or a
  /// file pattern that nothing matches; interrupted.
  GlobalTensors(store::Checkpoint checkpoint, const Selection& select, const Monitor& monitor);
  GlobalTensors(const GlobalTensors&) = delete;
  GlobalTensors& operator=(const GlobalTensors&) = delete;

  [[nodiscard]] const store::Checkpoint& checkpoint() const { return checkpoint_; }
  /// In the order of shards, files and tensors. Sparse tensors and the like are listed, without bytes, beside their
  /// parts.
  [[nodiscard]] const std::vector<GlobalTensor>& all() const { return wholes_; }
  /// Throws not_found; invalid_argument, naming the files, if files of different names have different tensors of it.
  [[nodiscard]] const GlobalTensor& find(std::string_view name) const;
  /// Where a part's file is stored. Throws as open_shard() does.
  [[nodiscard]] std::shared_ptr<const StoredFile> stored(FileOfShard file) const { return cache_.file(file); }

  /// Throws as read() of all of it does, but for what its bytes are.
  void require_complete(const GlobalTensor& tensor) const { (void)pieces_of(tensor, whole_of(tensor.shape)); }

  /// The elements of `box`, a part of `tensor`, to `into`: element i of dimension d at i * strides[d] elements from it,
  /// where none is negative and no two elements share a place. Every byte is checked against its block's hash; replicas
  /// must agree in what's read, and one whose blocks are good stands in for one whose blocks are not. Up to `jobs`
  /// threads (0: one a core) work on a large box.
  ///
  /// Throws Errc::damaged, naming tensor, ranks and box, if parts disagree on shape or type, overlap without being
  /// replicas, leave a gap, or if replicas differ; and for blocks that fail their check. unsupported for a tensor
  /// without bytes anywhere, and for less than the whole of one whose elements are no whole bytes; invalid_argument for
  /// a box outside of it or strides that don't fit it; io; interrupted. What was written by then is undefined.
  void read(const GlobalTensor& tensor, const Box& box, std::span<const std::int64_t> strides, std::byte* into,
            unsigned jobs, const Monitor& monitor) const;

 private:
  /// Replicas that hold `box`: what is to be read of what they have.
  struct Piece {
    std::span<const TensorPart> replicas;
    Box box;
  };
  [[nodiscard]] std::vector<Piece> pieces_of(const GlobalTensor& tensor, const Box& box) const;
  [[nodiscard]] std::string origin(const TensorPart& part) const;
  void require_agreement(const GlobalTensor& tensor, const Piece& piece, const Monitor& monitor) const;
  /// Where a box of a tensor is read to.
  struct Target {
    const Box& box;
    std::span<const std::int64_t> strides;
    std::byte* into;
  };
  void plan_piece(const Piece& piece, const TensorPart& from, const Target& to, const Monitor& monitor,
                  Tasks& tasks) const;
  void read_from_any(const Piece& piece, const Target& to, const Monitor& monitor) const;

  store::Checkpoint checkpoint_;
  mutable BlockCache cache_;
  std::vector<GlobalTensor> wholes_;
  std::multimap<std::string_view, std::size_t> by_name_;
};

}  // namespace ckpt::ops
