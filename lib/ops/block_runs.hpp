// SPDX-License-Identifier: Apache-2.0
// Runs of neighbouring blocks: what is read and decoded at once. How large a frame is, the container says, and memory
// must not depend on that; and thousands of blocks that are stored as references are work for more than one thread.
#pragma once

#include "format/block_decoder.hpp"
#include "format/container_reader.hpp"
#include "os/aligned_buffer.hpp"

#include <cstdint>
#include <exception>
#include <functional>
#include <vector>

namespace ckpt::ops {

struct BlockRun {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

/// The blocks [first, first + count), or those of them that are wanted, in runs of at most block_size raw bytes that
/// lie next to each other in the container.
[[nodiscard]] std::vector<BlockRun> plan_runs(const format::ContainerReader& container, std::uint64_t first,
                                              std::uint64_t count,
                                              const std::function<bool(std::uint64_t block)>& wanted = {});

/// Where a run's stored bytes are.
struct StoredRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};
[[nodiscard]] StoredRange stored_range(const format::ContainerReader& container, const BlockRun& run);

/// What one thread needs to read runs.
class RunReader {
 public:
  /// Reads the run's stored bytes. What can't be read is said by the calls for the blocks, as Damaged, also for an I/O
  /// error: another checkpoint may do instead.
  void open(const format::ContainerReader& container, const BlockRun& run);
  /// A block's bytes as they're stored.
  [[nodiscard]] ByteView stored(std::uint64_t block) const;
  /// A block of the run, checked; valid until the next call. Throws Damaged.
  [[nodiscard]] ByteView decode(std::uint64_t block);

 private:
  const format::ContainerReader* container_ = nullptr;
  std::uint64_t begin_ = 0;
  std::exception_ptr unreadable_;
  ByteView stored_;
  os::AlignedBuffer buffer_;
  format::BlockDecoder decoder_;
};

}  // namespace ckpt::ops
