// SPDX-License-Identifier: Apache-2.0
// Which parts of which files make up each tensor of a whole checkpoint. From the catalogs alone: no block is read.
#pragma once

#include "format/catalog.hpp"
#include "ops/block_cache.hpp"
#include "ops/box.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ckpt::ops {

/// What one file holds of a tensor. The whole of it where it isn't sharded.
struct TensorPart {
  FileOfShard file;
  Box box;      ///< in the whole
  Tensor view;  ///< on the file, of the box's shape; without its name
};

/// Parts of one box are replicas and count once.
struct GlobalTensor {
  std::string name;
  std::string path;  ///< of the first file that has a part
  DType dtype = DType::opaque;
  Layout layout = Layout::strided;
  std::vector<std::int64_t> shape;
  /// Those that have bytes and elements, by box and then by shard. A rank that doesn't own a replicated tensor may have
  /// stored none for it: what has no bytes here can have them elsewhere.
  std::vector<TensorPart> parts;
  /// Not empty: why the parts can't be of one tensor. It names shards and shapes.
  std::string problem;
};

/// Add one shard after the other, then finish(). A tensor is known by its name and the path of its file, in which the
/// numbers don't count: ranks and steps. Not thread-safe.
class GlobalIndex {
 public:
  /// Files that `wanted` says no to are left out.
  template <class Wanted>
  void add(std::size_t shard, std::uint32_t rank, const format::Catalog& catalog, Wanted&& wanted) {
    for (std::size_t f = 0; f < catalog.files.size(); ++f) {
      const format::FileEntry& file = catalog.files[f];
      if (!wanted(file.path)) continue;
      (void)add_file({.shard = shard, .file = f}, rank, file.path,
                     std::span(catalog.tensors).subspan(file.first_tensor, file.tensor_count));
    }
  }

  /// The tensors of one file. For each: which of those that finish() gives it's a part of.
  [[nodiscard]] std::vector<std::size_t> add_file(FileOfShard file, std::uint32_t rank, const std::string& path,
                                                  std::span<const Tensor> tensors);

  /// In the order in which they were met: that of shards, files and tensors.
  [[nodiscard]] std::vector<GlobalTensor> finish() &&;

 private:
  struct Origin {
    std::uint32_t rank = 0;
    std::string path;
  };
  void add_part(GlobalTensor& whole, const Origin& first, const Origin& from, FileOfShard file, const Tensor& tensor);

  std::vector<GlobalTensor> wholes_;
  std::vector<Origin> origins_;                                        ///< of the first part of each
  std::map<std::pair<std::string, std::string>, std::size_t> by_key_;  ///< path without numbers, and name
};

}  // namespace ckpt::ops
