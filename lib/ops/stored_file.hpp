// SPDX-License-Identifier: Apache-2.0
// The raw bytes of stored files, checked block by block: in order with parallel decoding, or at random places through a
// small cache. Memory is bounded by a few blocks, whatever the sizes are.
#pragma once

#include "core/bytes.hpp"
#include "core/stop.hpp"
#include "format/container_reader.hpp"
#include "os/aligned_buffer.hpp"

#include <ckpt/monitor.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace ckpt::ops {

/// Gives the blocks [first, first + count) in order to `consume`, on the calling thread, while workers read and decode
/// ahead. Throws Damaged, io, interrupted.
using BlockSink = std::function<void(std::uint64_t block, ByteView raw)>;
void stream_blocks(const format::ContainerReader& container, std::uint64_t first, std::uint64_t count, unsigned jobs,
                   const Monitor& monitor, const BlockSink& consume);

/// Where the blocks of one file are. Immutable, so thread-safe.
class StoredFile {
 public:
  /// `file` is an entry of the container's catalog.
  StoredFile(std::shared_ptr<const format::ContainerReader> container, const format::FileEntry& file);

  [[nodiscard]] const format::ContainerReader& container() const { return *container_; }
  [[nodiscard]] std::uint64_t size() const { return begins_.back(); }

  /// A block of the file, by its number in the container.
  struct Place {
    std::uint64_t block = 0;
    std::uint64_t begin = 0;  ///< in the file
    std::uint64_t end = 0;
  };
  /// `offset` is below size().
  [[nodiscard]] Place place_of(std::uint64_t offset) const;

  /// The bytes [begin, end) in order, in pieces of at most a block, as stream_blocks() gives them.
  void stream(std::uint64_t begin, std::uint64_t end, unsigned jobs, const Monitor& monitor,
              const std::function<void(ByteView)>& consume) const;

 private:
  std::shared_ptr<const format::ContainerReader> container_;
  std::uint64_t first_block_;
  std::vector<std::uint64_t> begins_;  ///< of each block, and the file's end
};

/// Random access for one thread. Keeps the last used blocks, decoded.
class BlockCursor {
 public:
  /// `file` outlives the cursor; `blocks` is how many are kept.
  BlockCursor(const StoredFile& file, std::size_t blocks) : file_(file), slots_(blocks) {}

  [[nodiscard]] const StoredFile& file() const { return file_; }
  /// The bytes from `offset` to the end of its block; valid until the next call. `offset` is below file().size().
  [[nodiscard]] ByteView at(std::uint64_t offset);
  /// Fills `into`; the range lies inside the file.
  void read(std::uint64_t offset, std::span<std::byte> into);

 private:
  struct Slot {
    StoredFile::Place place;  ///< empty: nothing loaded
    std::uint64_t used = 0;
    os::AlignedBuffer raw;
  };
  [[nodiscard]] Slot& slot_for(std::uint64_t offset);
  void load(Slot& slot, const StoredFile::Place& place);

  const StoredFile& file_;
  std::vector<Slot> slots_;
  std::size_t current_ = 0;
  std::uint64_t clock_ = 0;
  format::BlockDecoder decoder_;
};

}  // namespace ckpt::ops
