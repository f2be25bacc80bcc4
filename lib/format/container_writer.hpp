// SPDX-License-Identifier: Apache-2.0
// Writes one container, front to back: header, catalog, frames of blocks, index, sums, footer.
#pragma once

#include "format/catalog.hpp"
#include "format/container_index.hpp"
#include "format/frame.hpp"
#include "os/direct_writer.hpp"

#include <string>
#include <vector>

namespace ckpt::format {

/// Used from one thread.
class ContainerWriter {
 public:
  /// `file` is empty and open for writing. The catalog, which must outlive this object, is written at once; blocks must
  /// follow in its order.
  ContainerWriter(os::Fd file, std::string path, const Catalog& catalog);

  /// The next block as it's to be stored; `hash` is of its raw bytes.
  void add(Codec codec, ByteView stored, const Digest& hash);

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
  ContainerIndex index_;
  // Small blocks that wait to be written as one frame.
  std::vector<FrameEntry> run_entries_;
  Bytes run_;
};

}  // namespace ckpt::format
