// SPDX-License-Identifier: Apache-2.0
// What a shard holds, apart from the bytes: files, typed extents, tensors, and how files are cut into blocks.
#pragma once

#include "core/bytes.hpp"
#include "core/tensor.hpp"
#include "format/base.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt::format {

/// Numbers are part of the on-disk format.
enum class EntryType : std::uint8_t { file = 0, directory = 1, symlink = 2, hardlink = 3 };
[[nodiscard]] std::string_view name_of(EntryType type);

struct FileEntry {
  std::string path;  ///< relative, bytes without NUL, no empty component, no "." and ".."
  EntryType type = EntryType::file;
  std::uint32_t mode = 0;  ///< permission bits, 07777
  std::uint64_t size = 0;
  std::int64_t mtime_ns = 0;
  std::optional<std::uint32_t> uid;  ///< both or none
  std::optional<std::uint32_t> gid;
  std::string target;  ///< of a symlink: as readlink gives it; of a hard link: a path of this catalog
  FileKind kind = FileKind::opaque;
  std::string note;
  // Ranges in the catalog's lists. They're in the order of the files, without gaps.
  std::uint64_t first_block = 0;
  std::uint64_t block_count = 0;
  std::uint64_t first_extent = 0;
  std::uint64_t extent_count = 0;
  std::uint64_t first_tensor = 0;
  std::uint64_t tensor_count = 0;
};

/// Which shard this is. It travels inside the container, so that a set can be put together from containers alone.
struct ShardInfo {
  std::uint64_t step = 0;
  std::uint64_t attempt = 0;
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  std::map<std::string, std::string> meta;
  std::optional<std::int64_t> created;       ///< seconds since the epoch
  std::map<std::string, std::string> marks;  ///< "suspect": why; copied to the manifest, also what isn't known here
  std::string writer;                        ///< name and version of the program
};

struct Catalog {
  ShardInfo shard;
  std::vector<FileEntry> files;  ///< sorted by path, bytewise; no path twice
  std::vector<Extent> extents;
  std::vector<Tensor> tensors;
  std::vector<std::uint64_t> block_sizes;  ///< raw
  std::vector<BaseCheckpoint> bases;       ///< that blocks may refer to

  [[nodiscard]] std::uint64_t raw_bytes() const;
};

/// True for a path that can be restored below any directory.
[[nodiscard]] bool is_safe_path(std::string_view path);
/// True if a symlink at `path` with this target points inside the tree.
[[nodiscard]] bool stays_inside(std::string_view path, std::string_view target);

[[nodiscard]] Bytes encode_catalog(const Catalog& catalog);
/// Checks everything that others rely on: safe paths, sorted and unique, no file above another, ranges that tile,
/// block sizes that add up to file sizes, extents and views inside their file. Throws Damaged.
[[nodiscard]] Catalog decode_catalog(ByteView data);

/// What a manifest says of a shard, without building the catalog.
struct CatalogSummary {
  ShardInfo shard;
  std::uint64_t files = 0;
  std::uint64_t tensors = 0;
  std::uint64_t raw_bytes = 0;
  std::vector<BaseCheckpoint> bases;
};
[[nodiscard]] CatalogSummary decode_catalog_summary(ByteView data);

/// Sizes of the blocks of one file: each extent and each gap is cut at multiples of block_size from its own start;
/// neighbouring pieces under share_limit share a block. Extents are sorted and lie inside the file.
[[nodiscard]] std::vector<std::uint64_t> cut_into_blocks(std::uint64_t file_size, const std::vector<Extent>& extents);

}  // namespace ckpt::format
