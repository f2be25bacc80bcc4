// SPDX-License-Identifier: Apache-2.0
// Writes one container, front to back: header, catalog, frames of blocks, index, sums, footer.
#pragma once

#include "format/catalog.hpp"
#include "format/container_index.hpp"
#include "format/frame.hpp"
#include "os/direct_writer.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ckpt::format {

/// A block as it's to be stored.
struct StoredBlock {
  Codec codec = Codec::raw;
  ByteView stored;
  Digest hash;  ///< of the raw bytes
  std::uint8_t depth = 0;
  std::optional<BaseRef> base = {};
};

/// Used from one thread.
class ContainerWriter {
 public:
  /// `file` is empty and open for writing. The catalog, which must outlive this object, is written at once; blocks must
  /// follow in its order. `incompat` has the flags that they may need; the footer says which ones they did need.
  ContainerWriter(os::Fd file, std::string path, const Catalog& catalog, std::uint64_t incompat);

  /// The next block.
  void add(const StoredBlock& block);

  struct Finished {
    os::Fd file;  ///< synced
    std::uint64_t size = 0;
    Digest root;    ///< of the shard
    Digest digest;  ///< of the container
    ContainerIndex index;
  };
  /// All blocks must have been added.
  [[nodiscard]] Finished finish();

 private:
  void write_frame(FrameKind kind, const std::vector<FrameEntry>& entries, ByteView payload);
  void flush_run();
  void align(std::uint64_t alignment);

  std::vector<std::uint64_t> sums_;  // before writer_, whose watcher appends to it
  os::DirectWriter writer_;
  const Catalog& catalog_;
  std::uint64_t incompat_;
  std::uint64_t used_ = 0;
  ContainerIndex index_;
  // Small blocks that wait to be written as one frame.
  std::vector<FrameEntry> run_entries_;
  Bytes run_;
};

}  // namespace ckpt::format
