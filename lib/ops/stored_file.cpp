// SPDX-License-Identifier: Apache-2.0
// What is read at once is a run of neighbouring blocks inside one frame, not the frame: how large a frame is, the
// container says, and memory must not depend on that.
#include "ops/stored_file.hpp"

#include "core/pipeline.hpp"
#include "format/constants.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <utility>

namespace ckpt::ops {
namespace {

/// Reads in flight are what keeps a device busy, also on few cores.
constexpr unsigned least_readers = 4;

struct Run {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

/// Runs whose stored bytes are at most those of one block.
std::vector<Run> plan_runs(const format::ContainerReader& container, std::uint64_t first, std::uint64_t count) {
  const auto& blocks = container.index().blocks;
  std::vector<Run> runs;
  std::uint64_t size = 0;
  for (std::uint64_t b = first; b < first + count; ++b) {
    const bool follows = b > first && blocks[b].place == blocks[b - 1].place + blocks[b - 1].stored_size;
    if (!follows || size + blocks[b].raw_size > format::block_size) {
      runs.push_back({.first = b, .count = 0});
      size = 0;
    }
    size += blocks[b].raw_size;
    ++runs.back().count;
  }
  return runs;
}

/// A run as a frame of its own, for the reader's sake.
format::FrameRecord window_of(const format::ContainerReader& container, const Run& run) {
  const auto& first = container.index().blocks[run.first];
  const auto& last = container.index().blocks[run.first + run.count - 1];
  return {.place = first.place,
          .payload = first.place,
          .payload_size = last.place + last.stored_size - first.place,
          .first_block = run.first,
          .block_count = run.count};
}

struct RunContent {
  Pool<os::AlignedBuffer>::Lease buffer;
  std::vector<Bytes> decoded;  ///< of the blocks that aren't stored raw
  std::vector<ByteView> raw;
};

RunContent decode_run(const format::ContainerReader& container, const Run& run, Pool<os::AlignedBuffer>& buffers) {
  RunContent content{.buffer = buffers.take(), .decoded = {}, .raw = {}};
  const format::FrameRecord window = window_of(container, run);
  const ByteView payload = container.read_frame(window, *content.buffer);
  content.raw.reserve(run.count);
  for (std::uint64_t b = run.first; b < run.first + run.count; ++b) {
    Bytes scratch;
    content.raw.push_back(container.decode_block(b, payload, window, scratch));
    if (!scratch.empty()) content.decoded.push_back(std::move(scratch));
  }
  return content;
}

}  // namespace

void stream_blocks(const format::ContainerReader& container, std::uint64_t first, std::uint64_t count, unsigned jobs,
                   const Monitor& monitor, const BlockSink& consume) {
  const std::vector<Run> runs = plan_runs(container, first, count);
  Pool<os::AlignedBuffer> buffers;
  const unsigned readers = std::max(least_readers, worker_count(jobs));
  run_ordered(
      runs.size(), readers, std::size_t{readers} + 2,
      [&](std::size_t i) {
        require_no_stop(monitor);
        return decode_run(container, runs[i], buffers);
      },
      [&](std::size_t i, const RunContent& content) {
        for (std::size_t b = 0; b < content.raw.size(); ++b) consume(runs[i].first + b, content.raw[b]);
      });
}

StoredFile::StoredFile(std::shared_ptr<const format::ContainerReader> container, const format::FileEntry& file)
    : container_(std::move(container)), first_block_(file.first_block), begins_(file.block_count + 1) {
  for (std::uint64_t i = 0; i < file.block_count; ++i) {
    begins_[i + 1] = begins_[i] + container_->catalog().block_sizes[first_block_ + i];
  }
}

StoredFile::Place StoredFile::place_of(std::uint64_t offset) const {
  const auto after = std::upper_bound(begins_.begin(), begins_.end(), offset);
  const auto index = static_cast<std::uint64_t>(after - begins_.begin()) - 1;
  return {.block = first_block_ + index, .begin = begins_[index], .end = begins_[index + 1]};
}

void StoredFile::stream(std::uint64_t begin, std::uint64_t end, unsigned jobs, const Monitor& monitor,
                        const std::function<void(ByteView)>& consume) const {
  if (begin == end) return;
  const Place first = place_of(begin);
  const Place last = place_of(end - 1);
  std::uint64_t at = first.begin;
  stream_blocks(*container_, first.block, last.block - first.block + 1, jobs, monitor,
                [&](std::uint64_t, ByteView raw) {
                  const std::uint64_t from = std::max(at, begin) - at;
                  const std::uint64_t to = std::min(at + raw.size(), end) - at;
                  at += raw.size();
                  consume(raw.subspan(from, to - from));
                });
}

void BlockCursor::load(Slot& slot, const StoredFile::Place& place) {
  // Emptied first: a block that fails its check must not be found here later.
  slot.place = {};
  const format::ContainerReader& container = file_.container();
  const bool is_raw = container.index().blocks[place.block].codec == format::Codec::raw;
  const format::FrameRecord window = window_of(container, {.first = place.block, .count = 1});
  const ByteView payload = container.read_frame(window, is_raw ? slot.stored : packed_);
  slot.raw = container.decode_block(place.block, payload, window, slot.decoded);
  slot.place = place;
}

BlockCursor::Slot& BlockCursor::slot_for(std::uint64_t offset) {
  const auto holds = [&](const Slot& slot) { return offset >= slot.place.begin && offset < slot.place.end; };
  if (holds(slots_[current_])) return slots_[current_];
  auto found = std::find_if(slots_.begin(), slots_.end(), holds);
  if (found == slots_.end()) {
    found =
        std::min_element(slots_.begin(), slots_.end(), [](const Slot& a, const Slot& b) { return a.used < b.used; });
    load(*found, file_.place_of(offset));
  }
  found->used = ++clock_;
  current_ = static_cast<std::size_t>(found - slots_.begin());
  return *found;
}

ByteView BlockCursor::at(std::uint64_t offset) {
  const Slot& slot = slot_for(offset);
  return slot.raw.subspan(offset - slot.place.begin);
}

void BlockCursor::read(std::uint64_t offset, std::span<std::byte> into) {
  while (!into.empty()) {
    const ByteView there = at(offset);
    const std::size_t count = std::min(there.size(), into.size());
    std::copy_n(there.begin(), count, into.begin());
    into = into.subspan(count);
    offset += count;
  }
}

}  // namespace ckpt::ops
