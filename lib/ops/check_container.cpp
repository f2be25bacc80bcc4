// SPDX-License-Identifier: Apache-2.0
#include "ops/check_container.hpp"

#include "core/pipeline.hpp"
#include "core/stop.hpp"
#include "format/constants.hpp"
#include "format/damaged.hpp"
#include "format/frame.hpp"
#include "ops/block_runs.hpp"

#include <algorithm>
#include <mutex>

namespace ckpt::ops {
namespace {

/// What is hashed at once of a cached file: it must stay in the processor's cache between the copy and the hash.
constexpr std::uint64_t cached_piece = 4 * format::granule;

/// Collects from many threads.
class Problems {
 public:
  void add(Problem problem) {
    const std::lock_guard lock(mutex_);
    list_.push_back(std::move(problem));
  }

  [[nodiscard]] std::vector<Problem> take() {
    std::sort(list_.begin(), list_.end(), [](const Problem& a, const Problem& b) { return a.begin < b.begin; });
    std::vector<Problem> joined;
    for (Problem& problem : list_) {
      Problem* last = joined.empty() ? nullptr : &joined.back();
      if (last != nullptr && last->kind == problem.kind && last->end == problem.begin &&
          last->detail == problem.detail) {
        last->end = problem.end;
      } else {
        joined.push_back(std::move(problem));
      }
    }
    return joined;
  }

 private:
  std::mutex mutex_;
  std::vector<Problem> list_;
};

/// Checks the granules in [begin, end), which `bytes` holds as far as they could be read.
void check_granules(ByteView bytes, std::uint64_t begin, std::uint64_t end, const std::vector<std::uint64_t>& sums,
                    Problems& problems) {
  for (std::uint64_t at = begin; at < end; at += format::granule) {
    const std::uint64_t size = std::min(format::granule, end - at);
    if (at - begin + size > bytes.size()) {
      problems.add({.kind = DamageKind::truncated, .begin = at, .end = at + size, .detail = "the file ends here"});
      continue;
    }
    if (xxh3_64(bytes.subspan(at - begin, size)) != sums[at / format::granule]) {
      problems.add(
          {.kind = DamageKind::altered, .begin = at, .end = at + size, .detail = "bytes differ from their sum"});
    }
  }
}

/// A unit that can't be read as a whole is read granule by granule, so that one bad sector costs one granule.
void check_unreadable(const os::AdaptiveReader& file, std::uint64_t begin, std::uint64_t end,
                      const std::vector<std::uint64_t>& sums, os::AlignedBuffer& buffer, Problems& problems) {
  for (std::uint64_t at = begin; at < end; at += format::granule) {
    const std::uint64_t stop = std::min(at + format::granule, end);
    try {
      check_granules(file.read(at, stop - at, buffer), at, stop, sums, problems);
    } catch (const Error& error) {
      problems.add({.kind = DamageKind::unreadable, .begin = at, .end = stop, .detail = error.what()});
    }
  }
}

void check_unit_sums(const os::AdaptiveReader& file, std::uint64_t begin, std::uint64_t end,
                     const std::vector<std::uint64_t>& sums, os::AlignedBuffer& buffer, Problems& problems) {
  try {
    if (!file.is_cached(begin, end - begin)) {
      check_granules(file.read(begin, end - begin, buffer), begin, end, sums, problems);
      return;
    }
    for (std::uint64_t at = begin; at < end; at += cached_piece) {
      const std::uint64_t size = std::min(cached_piece, end - at);
      check_granules(file.read_through_cache(at, size, buffer), at, at + size, sums, problems);
    }
  } catch (const Error& error) {
    if (error.code() != Errc::io) throw;
    check_unreadable(file, begin, end, sums, buffer, problems);
  }
}

bool same_block(const format::FrameEntry& entry, const format::BlockRecord& block) {
  return entry.raw_size == block.raw_size && entry.stored_size == block.stored_size && entry.codec == block.codec &&
         entry.depth == block.depth && entry.hash == block.hash && entry.base == block.base;
}

void check_frame_header(const format::ContainerReader& container, const format::FrameRecord& frame,
                        os::AlignedBuffer& buffer, Problems& problems) {
  try {
    const ByteView bytes = format::read_stored_range(container, frame.place, frame.payload - frame.place, buffer);
    const format::FrameHeader header = format::decode_frame_header(bytes, frame.place);
    const auto blocks = container.index().blocks.begin() + static_cast<std::ptrdiff_t>(frame.first_block);
    if (header.payload_size == frame.payload_size && header.first_block == frame.first_block &&
        header.entries.size() == frame.block_count &&
        std::equal(header.entries.begin(), header.entries.end(), blocks, same_block)) {
      return;
    }
    problems.add({.kind = DamageKind::altered,
                  .begin = frame.place,
                  .end = frame.payload,
                  .detail = "a frame header contradicts the index"});
  } catch (const format::Damaged& damage) {
    problems.add({.kind = damage.kind(), .begin = damage.begin(), .end = damage.end(), .detail = damage.what()});
  }
}

void check_run(const format::ContainerReader& container, const BlockRun& run, const CheckRequest& request,
               RunReader& reader, Problems& problems) {
  const auto add = [&](const format::Damaged& damage) {
    problems.add({.kind = damage.kind(), .begin = damage.begin(), .end = damage.end(), .detail = damage.what()});
  };
  try {
    reader.open(container, run);
  } catch (const format::Damaged& damage) {
    return add(damage);
  }
  for (std::uint64_t b = run.first; b < run.first + run.count; ++b) {
    try {
      const ByteView raw = reader.decode(b);
      if (request.on_block) request.on_block(b, raw);
    } catch (const format::Damaged& damage) {
      add(damage);
    }
  }
}

}  // namespace

std::vector<Problem> check_sums(const os::AdaptiveReader& file, const format::Footer& footer,
                                const CheckRequest& request, Monitor& monitor) {
  std::vector<std::uint64_t> own;
  if (request.sums == nullptr) own = format::read_sums(file, footer);
  const std::vector<std::uint64_t>& sums = request.sums == nullptr ? own : *request.sums;
  const std::uint64_t begin = request.begin / check_unit * check_unit;
  const std::uint64_t end = std::min(request.end, footer.sums.offset);
  if (begin >= end) return {};
  Problems problems;
  Pool<os::AlignedBuffer> buffers;
  const bool hot = file.is_cached(begin, std::min(check_unit, end - begin));
  const unsigned workers = hot ? worker_count(request.jobs) : reader_count(request.jobs);
  run_parallel((end - begin + check_unit - 1) / check_unit, workers, [&](std::size_t i) {
    require_no_stop(monitor);
    const std::uint64_t at = begin + i * check_unit;
    if (request.wanted && !request.wanted(at)) return;
    const std::uint64_t stop = std::min(at + check_unit, end);
    auto buffer = buffers.take();
    check_unit_sums(file, at, stop, sums, *buffer, problems);
    if (request.on_progress) request.on_progress(stop - at);
  });
  return problems.take();
}

std::vector<Problem> check_blocks(const format::ContainerReader& container, const CheckRequest& request,
                                  Monitor& monitor) {
  const auto is_asked_for = [&](std::uint64_t place) {
    return place >= request.begin && place < request.end && (!request.wanted || request.wanted(place));
  };
  std::vector<const format::FrameRecord*> frames;
  std::vector<BlockRun> runs;
  for (const format::FrameRecord& frame : container.index().frames) {
    if (!is_asked_for(frame.place)) continue;
    frames.push_back(&frame);
    const auto of_frame = plan_runs(container, frame.first_block, frame.block_count);
    runs.insert(runs.end(), of_frame.begin(), of_frame.end());
  }
  Problems problems;
  Pool<os::AlignedBuffer> buffers;
  Pool<RunReader> readers;
  run_parallel(frames.size(), reader_count(request.jobs), [&](std::size_t i) {
    require_no_stop(monitor);
    auto buffer = buffers.take();
    check_frame_header(container, *frames[i], *buffer, problems);
  });
  run_parallel(runs.size(), reader_count(request.jobs), [&](std::size_t i) {
    require_no_stop(monitor);
    auto reader = readers.take();
    check_run(container, runs[i], request, *reader, problems);
    const StoredRange range = stored_range(container, runs[i]);
    if (request.on_progress) request.on_progress(range.end - range.begin);
  });
  return problems.take();
}

}  // namespace ckpt::ops
