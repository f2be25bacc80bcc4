// SPDX-License-Identifier: Apache-2.0
#include "ops/file_writer.hpp"

#include "core/pipeline.hpp"
#include "core/stop.hpp"
#include "format/damaged.hpp"
#include "ops/block_runs.hpp"
#include "ops/describe_hit.hpp"
#include "ops/stored_file.hpp"

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

constexpr std::size_t no_file = static_cast<std::size_t>(-1);

/// A run of blocks of one shard that are all wanted.
struct RunJob {
  std::size_t shard = 0;
  BlockRun run;
};

/// Calls visit(block, raw) for each block of a run; damage gets the names of what it hits.
template <class Visit>
void decode_run(const ContainerReader& container, const BlockRun& run, RunReader& reader, Visit visit) {
  try {
    reader.open(container, run);
    for (std::uint64_t b = run.first; b < run.first + run.count; ++b) visit(b, reader.decode(b));
  } catch (const Damaged& damage) {
    throw name_hit(container, damage);
  }
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
  std::vector<RunJob> run_jobs;
  for (std::size_t s = 0; s < shards.size(); ++s) {
    targets.push_back(targets_in(*shards[s], s, files, copies));
    const auto is_wanted = [&](std::uint64_t b) { return targets[s].file[b] != no_file; };
    for (const BlockRun& run : plan_runs(*shards[s], 0, shards[s]->index().blocks.size(), is_wanted)) {
      run_jobs.push_back({.shard = s, .run = run});
    }
  }

  Pool<RunReader> readers;
  std::mutex mutex;
  std::uint64_t done = 0;
  run_parallel(run_jobs.size(), reader_count(jobs), [&](std::size_t i) {
    require_no_stop(monitor);
    const RunJob& job = run_jobs[i];
    const BlockTargets& target = targets[job.shard];
    auto reader = readers.take();
    std::uint64_t written = 0;
    decode_run(*shards[job.shard], job.run, *reader, [&](std::uint64_t b, ByteView raw) {
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
  // Borrowed: closed by no one here.
  struct Borrowed {
    explicit Borrowed(int number) : fd(number) {}
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;
    ~Borrowed() { (void)fd.release(); }
    os::Fd fd;
  } out(fd);
  std::uint64_t written = 0;
  try {
    stream_blocks(container, file.first_block, file.block_count, jobs, monitor, [&](std::uint64_t, ByteView raw) {
      os::write_all(out.fd, raw, "standard output");
      written += raw.size();
      monitor.progress({.stage = "restore", .done = written, .total = file.size});
    });
  } catch (const Damaged& damage) {
    throw name_hit(container, damage);
  }
  return written;
}

void check_file(const Shards& shards, const PlanItem& item, unsigned jobs, Monitor& monitor) {
  const ContainerReader& container = *shards[item.shard];
  const std::vector<BlockRun> runs = plan_runs(container, item.content->first_block, item.content->block_count);
  Pool<RunReader> readers;
  run_parallel(runs.size(), reader_count(jobs), [&](std::size_t i) {
    require_no_stop(monitor);
    auto reader = readers.take();
    decode_run(container, runs[i], *reader, [](std::uint64_t, ByteView) {});
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
