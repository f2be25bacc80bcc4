// SPDX-License-Identifier: Apache-2.0
#include "ops/block_runs.hpp"

#include "format/constants.hpp"
#include "format/damaged.hpp"

namespace ckpt::ops {

std::vector<BlockRun> plan_runs(const format::ContainerReader& container, std::uint64_t first, std::uint64_t count,
                                const std::function<bool(std::uint64_t block)>& wanted) {
  const auto& blocks = container.index().blocks;
  std::vector<BlockRun> runs;
  std::uint64_t size = 0;
  for (std::uint64_t b = first; b < first + count; ++b) {
    if (wanted && !wanted(b)) continue;
    const bool follows = !runs.empty() && runs.back().first + runs.back().count == b &&
                         blocks[b].place == blocks[b - 1].place + blocks[b - 1].stored_size;
    if (!follows || size + blocks[b].raw_size > format::block_size) {
      runs.push_back({.first = b, .count = 0});
      size = 0;
    }
    size += blocks[b].raw_size;
    ++runs.back().count;
  }
  return runs;
}

StoredRange stored_range(const format::ContainerReader& container, const BlockRun& run) {
  const format::BlockRecord& first = container.index().blocks[run.first];
  const format::BlockRecord& last = container.index().blocks[run.first + run.count - 1];
  return {.begin = first.place, .end = last.place + last.stored_size};
}

void RunReader::open(const format::ContainerReader& container, const BlockRun& run) {
  const StoredRange range = stored_range(container, run);
  container_ = &container;
  begin_ = range.begin;
  unreadable_ = nullptr;
  try {
    stored_ = format::read_stored_range(container, range.begin, range.end - range.begin, buffer_);
  } catch (const format::Damaged&) {
    // Each block by itself: some may be readable, or come from elsewhere. stored() has no such way out.
    stored_ = {};
    unreadable_ = std::current_exception();
  }
}

ByteView RunReader::stored(std::uint64_t block) const {
  if (unreadable_) std::rethrow_exception(unreadable_);
  const format::BlockRecord& record = container_->index().blocks[block];
  return stored_.subspan(record.place - begin_, record.stored_size);
}

ByteView RunReader::decode(std::uint64_t block) {
  return unreadable_ ? decoder_.read(*container_, block) : decoder_.decode(*container_, block, stored(block));
}

}  // namespace ckpt::ops
