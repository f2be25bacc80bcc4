// SPDX-License-Identifier: Apache-2.0
#include "ops/stored_file.hpp"

#include "core/pipeline.hpp"
#include "format/constants.hpp"
#include "ops/block_runs.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <utility>

namespace ckpt::ops {
namespace {

/// The raw bytes of one run: what was decoded, gathered where there's more than one block.
struct RunContent {
  Pool<RunReader>::Lease reader;
  Pool<os::AlignedBuffer>::Lease gathered;
  std::vector<ByteView> raw;
};

RunContent decode_run(const format::ContainerReader& container, const BlockRun& run, Pool<RunReader>& readers,
                      Pool<os::AlignedBuffer>& buffers) {
  RunContent content{.reader = readers.take(), .gathered = buffers.take(), .raw = {}};
  content.reader->open(container, run);
  content.raw.reserve(run.count);
  if (run.count == 1) {
    content.raw.push_back(content.reader->decode(run.first));
    return content;
  }
  content.gathered->reserve(format::block_size);
  std::byte* to = content.gathered->data();
  for (std::uint64_t b = run.first; b < run.first + run.count; ++b) {
    const ByteView raw = content.reader->decode(b);
    std::copy(raw.begin(), raw.end(), to);
    content.raw.emplace_back(to, raw.size());
    to += raw.size();
  }
  return content;
}

}  // namespace

void stream_blocks(const format::ContainerReader& container, std::uint64_t first, std::uint64_t count, unsigned jobs,
                   const Monitor& monitor, const BlockSink& consume) {
  const std::vector<BlockRun> runs = plan_runs(container, first, count);
  Pool<RunReader> readers;
  Pool<os::AlignedBuffer> buffers;
  const unsigned threads = reader_count(jobs);
  run_ordered(
      runs.size(), threads, std::size_t{threads} + 2,
      [&](std::size_t i) {
        require_no_stop(monitor);
        return decode_run(container, runs[i], readers, buffers);
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
  const ByteView raw = decoder_.read(file_.container(), place.block);
  slot.raw.reserve(raw.size());
  std::copy(raw.begin(), raw.end(), slot.raw.data());
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
  return ByteView(slot.raw.data(), slot.place.end - slot.place.begin).subspan(offset - slot.place.begin);
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
