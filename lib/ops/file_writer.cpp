// SPDX-License-Identifier: Apache-2.0
#include "ops/file_writer.hpp"

#include "core/pipeline.hpp"
#include "format/damaged.hpp"
#include "ops/describe_hit.hpp"
#include "ops/stop.hpp"

#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <utility>

namespace ckpt::ops {
namespace {

using format::ContainerReader;
using format::Damaged;
using format::FrameRecord;

constexpr unsigned least_readers = 4;
constexpr std::size_t no_file = static_cast<std::size_t>(-1);

/// A frame of one shard with at least one block that is wanted.
struct FrameJob {
  std::size_t shard = 0;
  const FrameRecord* frame = nullptr;
};

/// Reading a container's frame: an I/O error is damage, since another checkpoint may do instead.
ByteView read_frame(const ContainerReader& container, const FrameRecord& frame, os::AlignedBuffer& buffer) {
  try {
    return container.read_frame(frame, buffer);
  } catch (const Damaged&) {
    throw;
  } catch (const Error& error) {
    if (error.code() != Errc::io) throw;
    throw Damaged(DamageKind::unreadable, frame.payload, frame.payload + frame.payload_size, error.what());
  }
}

/// Calls visit(block, raw) for each wanted block of a frame.
template <class Wanted, class Visit>
void decode_frame(const ContainerReader& container, const FrameRecord& frame, os::AlignedBuffer& buffer, Bytes& scratch,
                  Wanted wanted, Visit visit) {
  try {
    const ByteView payload = read_frame(container, frame, buffer);
    for (std::uint64_t b = frame.first_block; b < frame.first_block + frame.block_count; ++b) {
      if (wanted(b)) visit(b, container.decode_block(b, payload, frame, scratch));
    }
  } catch (const Damaged& damage) {
    throw name_hit(container, damage);
  }
}

/// The frames that hold the blocks of one file, in order.
std::vector<const FrameRecord*> frames_of(const ContainerReader& container, const format::FileEntry& file) {
  std::vector<const FrameRecord*> frames;
  const auto& all = container.index().frames;
  if (file.block_count == 0) return frames;
  for (const FrameRecord* frame = &container.frame_of(file.first_block);
       frame != all.data() + all.size() && frame->first_block < file.first_block + file.block_count; ++frame) {
    frames.push_back(frame);
  }
  return frames;
}

/// Files while they're being written: opened with their first block, closed with their last.
class OpenFiles {
 public:
  OpenFiles(const std::vector<FileToWrite>& files, Destination& destination)
      : files_(files), destination_(destination), slots_(files.size()) {
    for (std::size_t i = 0; i < files.size(); ++i) slots_[i].blocks_left = files[i].item->content->block_count;
  }

  void write(std::size_t file, std::uint64_t offset, ByteView raw) {
    Slot& slot = slots_[file];
    {
      const std::lock_guard lock(slot.mutex);
      if (!slot.fd.valid()) slot.fd = destination_.create_file(files_[file].item->path);
    }
    os::write_at(slot.fd, offset, raw, files_[file].item->path);
    const std::lock_guard lock(slot.mutex);
    if (--slot.blocks_left == 0) close(file);
  }

  void write_empty(std::size_t file) {
    slots_[file].fd = destination_.create_file(files_[file].item->path);
    close(file);
  }

 private:
  struct Slot {
    std::mutex mutex;
    os::Fd fd;
    std::uint64_t blocks_left = 0;
  };

  void close(std::size_t file) {
    const PlanItem& item = *files_[file].item;
    os::Fd& fd = slots_[file].fd;
    if (item.entry->uid && item.entry->gid && ::fchown(fd.get(), *item.entry->uid, *item.entry->gid) != 0 &&
        errno != EPERM) {
      os::throw_errno(errno, "cannot change the owner of '" + item.path + "'");
    }
    if (files_[file].sync) os::sync(fd, item.path);
    fd.close(item.path);
  }

  const std::vector<FileToWrite>& files_;
  Destination& destination_;
  std::vector<Slot> slots_;
};

/// For one shard: which file each block goes to, and where in it.
struct BlockTargets {
  std::vector<std::size_t> file;
  std::vector<std::uint64_t> offset;
};

BlockTargets targets_in(const ContainerReader& container, std::size_t shard, const std::vector<FileToWrite>& files,
                        std::vector<std::vector<std::size_t>>& copies) {
  const std::size_t count = container.index().blocks.size();
  BlockTargets targets{.file = std::vector<std::size_t>(count, no_file), .offset = std::vector<std::uint64_t>(count)};
  for (std::size_t f = 0; f < files.size(); ++f) {
    const PlanItem& item = *files[f].item;
    if (item.shard != shard) continue;
    std::uint64_t offset = 0;
    for (std::uint64_t b = item.content->first_block; b < item.content->first_block + item.content->block_count; ++b) {
      // Two names of one content: a hard link whose target isn't restored, twice.
      if (targets.file[b] == no_file)
        targets.file[b] = f;
      else if (offset == 0)
        copies[targets.file[b]].push_back(f);
      targets.offset[b] = offset;
      offset += container.index().blocks[b].raw_size;
    }
  }
  return targets;
}

}  // namespace

void write_files(const Shards& shards, const std::vector<FileToWrite>& files, Destination& destination, unsigned jobs,
                 Monitor& monitor) {
  OpenFiles open(files, destination);
  std::uint64_t total = 0;
  for (std::size_t f = 0; f < files.size(); ++f) {
    total += files[f].item->content->size;
    if (files[f].item->content->block_count == 0) open.write_empty(f);
  }
  std::vector<std::vector<std::size_t>> copies(files.size());
  std::vector<BlockTargets> targets;
  std::vector<FrameJob> frame_jobs;
  for (std::size_t s = 0; s < shards.size(); ++s) {
    targets.push_back(targets_in(*shards[s], s, files, copies));
    for (const FrameRecord& frame : shards[s]->index().frames) {
      const auto begin = targets[s].file.begin() + static_cast<std::ptrdiff_t>(frame.first_block);
      const auto end = begin + static_cast<std::ptrdiff_t>(frame.block_count);
      if (std::any_of(begin, end, [](std::size_t f) { return f != no_file; })) frame_jobs.push_back({s, &frame});
    }
  }

  Pool<os::AlignedBuffer> buffers;
  Pool<Bytes> scratches;
  std::mutex mutex;
  std::uint64_t done = 0;
  run_parallel(frame_jobs.size(), std::max(least_readers, worker_count(jobs)), [&](std::size_t i) {
    require_no_stop(monitor);
    const FrameJob& job = frame_jobs[i];
    const BlockTargets& target = targets[job.shard];
    auto buffer = buffers.take();
    auto scratch = scratches.take();
    std::uint64_t written = 0;
    decode_frame(
        *shards[job.shard], *job.frame, *buffer, *scratch, [&](std::uint64_t b) { return target.file[b] != no_file; },
        [&](std::uint64_t b, ByteView raw) {
          open.write(target.file[b], target.offset[b], raw);
          for (const std::size_t copy : copies[target.file[b]]) open.write(copy, target.offset[b], raw);
          written += raw.size();
        });
    const std::lock_guard lock(mutex);
    done += written;
    monitor.progress({.stage = "restore", .done = done, .total = total});
  });
}

std::uint64_t stream_file(const Shards& shards, const PlanItem& item, int fd, unsigned jobs, Monitor& monitor) {
  const ContainerReader& container = *shards[item.shard];
  const format::FileEntry& file = *item.content;
  const std::vector<const FrameRecord*> frames = frames_of(container, file);
  const auto wanted = [&](std::uint64_t b) { return b >= file.first_block && b < file.first_block + file.block_count; };
  Pool<os::AlignedBuffer> buffers;
  Pool<Bytes> scratches;
  // Borrowed: closed by no one here.
  struct Borrowed {
    explicit Borrowed(int number) : fd(number) {}
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;
    ~Borrowed() { (void)fd.release(); }
    os::Fd fd;
  } out(fd);
  std::uint64_t written = 0;
  const unsigned workers = worker_count(jobs);
  run_ordered(
      frames.size(), workers, static_cast<std::size_t>(workers) + 2,
      [&](std::size_t i) {
        require_no_stop(monitor);
        auto buffer = buffers.take();
        auto scratch = scratches.take();
        Bytes bytes;
        decode_frame(container, *frames[i], *buffer, *scratch, wanted,
                     [&](std::uint64_t, ByteView raw) { append(bytes, raw); });
        return bytes;
      },
      [&](std::size_t, const Bytes& bytes) {
        os::write_all(out.fd, bytes, "standard output");
        written += bytes.size();
        monitor.progress({.stage = "restore", .done = written, .total = file.size});
      });
  return written;
}

void check_file(const Shards& shards, const PlanItem& item, unsigned jobs, Monitor& monitor) {
  const ContainerReader& container = *shards[item.shard];
  const std::vector<const FrameRecord*> frames = frames_of(container, *item.content);
  Pool<os::AlignedBuffer> buffers;
  Pool<Bytes> scratches;
  run_parallel(frames.size(), worker_count(jobs), [&](std::size_t i) {
    require_no_stop(monitor);
    auto buffer = buffers.take();
    auto scratch = scratches.take();
    decode_frame(
        container, *frames[i], *buffer, *scratch, [](std::uint64_t) { return true; }, [](std::uint64_t, ByteView) {});
  });
}

std::vector<bool> have_same_bytes(const Shards& shards, const std::vector<PlanItem>& plan,
                                  const std::vector<std::size_t>& candidates, const Destination& destination,
                                  unsigned jobs, Monitor& monitor) {
  std::vector<bool> answers;
  Pool<os::AlignedBuffer> buffers;
  for (const std::size_t i : candidates) {
    const PlanItem& item = plan[i];
    const ContainerReader& container = *shards[item.shard];
    const os::Fd fd = destination.open_for_reading(item.path);
    const os::AdaptiveReader reader("/proc/self/fd/" + std::to_string(fd.get()));
    std::vector<std::uint64_t> offsets;
    std::uint64_t offset = 0;
    for (std::uint64_t b = 0; b < item.content->block_count; ++b) {
      offsets.push_back(offset);
      offset += container.index().blocks[item.content->first_block + b].raw_size;
    }
    std::atomic<bool> same = true;
    run_parallel(offsets.size(), worker_count(jobs), [&](std::size_t b) {
      require_no_stop(monitor);
      if (!same) return;
      const format::BlockRecord& block = container.index().blocks[item.content->first_block + b];
      auto buffer = buffers.take();
      const auto bytes = reader.read(offsets[b], block.raw_size, *buffer);
      if (bytes.size() != block.raw_size || xxh3_128(bytes) != block.hash) same = false;
    });
    answers.push_back(same);
  }
  return answers;
}

}  // namespace ckpt::ops
