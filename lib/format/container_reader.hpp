// SPDX-License-Identifier: Apache-2.0
// Reads one container: its ends, index and catalog at once, its frames on demand. Nothing is given out unchecked.
#pragma once

#include "format/block_decoder.hpp"
#include "format/catalog.hpp"
#include "format/container_index.hpp"
#include "format/ends.hpp"
#include "os/adaptive_reader.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ckpt::format {

/// Reads a container's footer; `digest` gets its own checksum. Throws as decode_footer() does.
[[nodiscard]] Footer read_footer(const os::AdaptiveReader& file, Digest* digest);

/// The sums' stored values: one XXH3-64 for each granule of [0, footer.sums.offset). Throws Damaged.
[[nodiscard]] std::vector<std::uint64_t> read_sums(const os::AdaptiveReader& file, const Footer& footer);

/// What a manifest says of a container: read without its tables of tensors and blocks being built.
struct ContainerSummary {
  Footer footer;
  Digest digest;
  Digest root;
  CatalogSummary catalog;
  std::vector<BaseCheckpoint> bases;  ///< those that blocks really refer to
};
/// Throws as the ContainerReader does, for what it looks at.
[[nodiscard]] ContainerSummary read_container_summary(const std::string& path);

/// Thread-safe after construction: each thread brings its own buffers.
class ContainerReader {
 public:
  /// `bases` opens what blocks refer to; without it a block with a base in another container can't be decoded. Throws
  /// Damaged; not_found; unsupported; io.
  explicit ContainerReader(const std::string& file_path, std::shared_ptr<const BaseContainers> bases = nullptr,
                           os::CacheUse use = os::CacheUse::adaptive);

  [[nodiscard]] const std::string& path() const { return file_.path(); }
  [[nodiscard]] const Footer& footer() const { return footer_; }
  [[nodiscard]] const Digest& digest() const { return digest_; }
  [[nodiscard]] const ContainerIndex& index() const { return index_; }
  [[nodiscard]] const Catalog& catalog() const { return catalog_; }
  [[nodiscard]] const os::AdaptiveReader& file() const { return file_; }

  /// The container of a block's base. Throws Damaged if there's none.
  [[nodiscard]] std::shared_ptr<const ContainerReader> base_container(const BaseRef& base) const;

  /// The raw bytes of a damaged block, from elsewhere if there's a place for that. Unchecked.
  [[nodiscard]] std::optional<Bytes> substitute(std::uint64_t block) const;

  /// The frame that holds a block.
  [[nodiscard]] const FrameRecord& frame_of(std::uint64_t block) const;

 private:
  os::AdaptiveReader file_;
  std::shared_ptr<const BaseContainers> bases_;
  Footer footer_;
  Digest digest_;
  ContainerIndex index_;
  Catalog catalog_;
};

}  // namespace ckpt::format
