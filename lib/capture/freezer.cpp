// SPDX-License-Identifier: Apache-2.0
#include "capture/freezer.hpp"

#include "capture/aside_memory.hpp"
#include "capture/available_memory.hpp"
#include "capture/frozen_chunks.hpp"
#include "capture/frozen_layout.hpp"
#include "capture/page_guard.hpp"
#include "core/pipeline.hpp"

#include <ckpt/error.hpp>

#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>
#include <utility>

namespace ckpt::capture {
namespace {

using Clock = std::chrono::steady_clock;

/// A call to protect takes as much at most, so that several threads share a large state; and they copy if there's at
/// least as much for each.
constexpr std::uintptr_t protect_at_once = std::uintptr_t{64} << 20U;
constexpr std::uint64_t worth_a_thread = std::uint64_t{16} << 20U;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

unsigned thread_count(std::uint64_t bytes) {
  constexpr unsigned most_threads = 8;  // no memory gets faster by more
  return static_cast<unsigned>(
      std::clamp<std::uint64_t>(bytes / worth_a_thread, 1, std::min(worker_count(0), most_threads)));
}

/// Before Linux 6.4 only pages that are there can be protected. Reading makes them be there.
void touch(Interval at) {
  constexpr int populate_read = 22;  // MADV_POPULATE_READ, since Linux 5.14
  if (::madvise(bytes_at(at.begin), at.size(), populate_read) == 0) return;
  for (std::uintptr_t page = at.begin; page < at.end; page += page_size()) {
    (void)*static_cast<const volatile std::byte*>(bytes_at(page));
  }
}

class Frozen final : public FrozenMemory {
 public:
  Frozen(std::vector<MemoryRange> ranges, std::shared_ptr<PageGuard> guard, std::string why_never,
         std::shared_ptr<AsideMemory> aside, double patience)
      : ranges_(std::move(ranges)),
        guard_(std::move(guard)),
        why_never_(std::move(why_never)),
        aside_(std::move(aside)),
        patience_(patience) {
    for (const MemoryRange& range : ranges_) steady_left_ += range.steady ? range.size : 0;
  }

  ~Frozen() override {
    if (owner_ == ::getpid()) release_all();  // else it's the parent's
  }

  void freeze(const std::function<void()>& begun) override;
  [[nodiscard]] std::size_t count() const override { return ranges_.size(); }
  [[nodiscard]] std::uint64_t size(std::size_t range) const override { return ranges_.at(range).size; }
  void read(std::size_t range, std::uint64_t offset, std::span<std::byte> into) const override;
  void release(std::size_t range, std::uint64_t offset, std::uint64_t size) override;
  [[nodiscard]] bool is_released() const override { return is_released_ && steady_left_ == 0; }
  [[nodiscard]] FreezeTimings timings() const override;

 private:
  void require_owner() const;
  void require_part(std::size_t range, std::uint64_t offset, std::uint64_t size) const;
  [[nodiscard]] std::vector<std::size_t> protect();
  void copy(std::vector<std::size_t> chunks, const std::function<void()>& begun);
  void end();
  void release_all();

  std::vector<MemoryRange> ranges_;
  std::shared_ptr<PageGuard> guard_;
  std::string why_never_;
  std::shared_ptr<AsideMemory> aside_;
  double patience_;
  pid_t owner_ = ::getpid();
  std::shared_ptr<FrozenChunks> chunks_;
  std::atomic<bool> is_begun_ = false;
  std::atomic<bool> is_freezing_ = false;
  std::atomic<bool> is_added_ = false;
  std::atomic<bool> is_released_ = false;  // what isn't steady
  std::atomic<std::uint64_t> steady_left_ = 0;
  std::atomic<bool> is_dropped_ = false;
  mutable std::atomic<unsigned> readers_ = 0;
  mutable std::mutex mutex_;  // of timings_
  FreezeTimings timings_;
};

void Frozen::require_owner() const {
  if (owner_ != ::getpid()) throw Error(Errc::invalid_argument, "memory that was frozen before a fork is its parent's");
}

void Frozen::require_part(std::size_t range, std::uint64_t offset, std::uint64_t size) const {
  require_owner();
  if (!is_begun_) throw Error(Errc::invalid_argument, "memory is read before it's frozen");
  if (range >= ranges_.size() || offset > ranges_[range].size || size > ranges_[range].size - offset) {
    throw Error(Errc::invalid_argument, "no such part of the frozen memory");
  }
}

void Frozen::freeze(const std::function<void()>& begun) {
  require_owner();
  if (is_freezing_.exchange(true)) throw Error(Errc::invalid_argument, "memory is frozen once");
  const Clock::time_point start = Clock::now();
  try {
    std::vector<MemoryRange> to_keep = ranges_;
    for (MemoryRange& range : to_keep) {
      if (range.steady) range.size = 0;
    }
    FrozenLayout layout = lay_out(to_keep, why_never_);
    {
      const std::lock_guard lock(mutex_);
      timings_.protected_bytes = layout.protected_bytes;
      timings_.copied_bytes = layout.copied_bytes;
      timings_.why_copied = layout.why_copied;
    }
    chunks_ = std::allocate_shared<FrozenChunks>(MappedAllocator<FrozenChunks>(), std::move(layout), guard_.get(),
                                                 *aside_, static_cast<std::int64_t>(patience_ * 1e9));
    aside_->begin_use();
    is_added_ = true;
    if (guard_) guard_->add(*chunks_);
    std::vector<std::size_t> to_copy = protect();
    is_begun_ = true;
    if (chunks_->count() == 0) end();
    copy(std::move(to_copy), begun);
  } catch (...) {
    is_begun_ = chunks_ != nullptr;
    release_all();
    is_released_ = true;
    throw;
  }
  const std::lock_guard lock(mutex_);
  timings_.freeze_seconds = seconds_since(start);
}

/// The chunks that must be copied.
std::vector<std::size_t> Frozen::protect() {
  const std::size_t count = chunks_->protected_count();
  std::vector<std::size_t> to_copy;
  if (count > 0) {
    // Neighbours are protected in one call.
    struct Piece {
      Interval at;
      std::size_t first = 0;
      std::size_t end = 0;
      int error = 0;
    };
    std::vector<Piece> pieces;
    const std::span<const Interval> watched = chunks_->watched();
    std::vector<int> errors;
    for (const Interval& at : watched) errors.push_back(guard_->watch(at));
    std::size_t mapping = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const Interval at = chunks_->place(i);
      const std::size_t before = mapping;
      while (at.begin >= watched[mapping].end) ++mapping;
      if (pieces.empty() || before != mapping || pieces.back().at.end != at.begin ||
          pieces.back().at.size() >= protect_at_once) {
        pieces.push_back({.at = at, .first = i, .end = i + 1, .error = errors[mapping]});
      } else {
        pieces.back().at.end = at.end;
        pieces.back().end = i + 1;
      }
    }
    constexpr std::uint64_t quicker_than_copying = 4;
    run_parallel(pieces.size(), thread_count(timings_.protected_bytes / quicker_than_copying), [&](std::size_t i) {
      Piece& piece = pieces[i];
      if (piece.error != 0) return;
      if (!guard_->protects_untouched()) touch(piece.at);
      piece.error = guard_->protect(piece.at);
    });
    std::uint64_t failed = 0;
    int error = 0;
    for (const Piece& piece : pieces) {
      if (piece.error == 0) continue;
      for (std::size_t i = piece.first; i < piece.end; ++i) to_copy.push_back(i);
      failed += piece.at.size();
      error = piece.error;
    }
    if (failed > 0) {
      const std::lock_guard lock(mutex_);
      failed = std::min(failed, timings_.protected_bytes);  // ranges may overlap
      if (failed > timings_.copied_bytes / 2 || timings_.why_copied.empty()) {
        timings_.why_copied =
            std::string("cannot write-protect memory: ") +
            (error == EBUSY ? "another userfaultfd of this process watches it" : std::strerror(error));
      }
      timings_.protected_bytes -= failed;
      timings_.copied_bytes += failed;
    }
  }
  for (std::size_t i = count; i < chunks_->count(); ++i) to_copy.push_back(i);
  return to_copy;
}

void Frozen::copy(std::vector<std::size_t> chunks, const std::function<void()>& begun) {
  std::vector<char> left(chunks.size(), 0);
  run_parallel(chunks.size(), thread_count(chunks.size() * cell_size),
               [&](std::size_t i) { left[i] = chunks_->set_aside(chunks[i]) ? 0 : 1; });
  if (begun) begun();
  // Those that had no room, in waves: what is read of them meanwhile is read where it is.
  std::uint64_t waves = 1;
  double waited = 0;
  bool is_fresh = false;  // room came, and nothing has been copied into it yet
  for (std::size_t i = 0; i < chunks.size();) {
    if (left[i] == 0) {
      ++i;
      continue;
    }
    const std::uint64_t seen = aside_->changes();
    if (chunks_->set_aside(chunks[i])) {
      is_fresh = false;
      ++i;
      continue;
    }
    if (!is_fresh) ++waves;
    is_fresh = true;
    const Clock::time_point start = Clock::now();
    const auto until = start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(patience_));
    const bool has_changed = aside_->wait_for_change(seen, until);
    waited += seconds_since(start);
    if (!has_changed) {
      throw Error(Errc::busy, "no room came to set memory aside for " + std::to_string(std::lround(patience_)) + " s")
          .with_hint("allow more memory to be set aside, or start the save before it's frozen");
    }
  }
  const std::lock_guard lock(mutex_);
  timings_.waves = waves;
  timings_.wait_seconds = waited;
}

void Frozen::read(std::size_t range, std::uint64_t offset, std::span<std::byte> into) const {
  require_part(range, offset, into.size());
  struct Reader {
    explicit Reader(std::atomic<unsigned>& n) : count(n) { ++count; }
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;
    ~Reader() { --count; }
    std::atomic<unsigned>& count;
  };
  const Reader reader(readers_);
  if (is_dropped_) throw Error(Errc::busy, "the memory to save could not be frozen");
  if (ranges_[range].steady) {
    std::copy_n(ranges_[range].begin + offset, into.size(), into.begin());
  } else {
    chunks_->read(range, offset, into);
  }
}

void Frozen::release(std::size_t range, std::uint64_t offset, std::uint64_t size) {
  require_part(range, offset, size);
  if (ranges_[range].steady) {
    steady_left_ -= size;
  } else if (chunks_->release(range, offset, size)) {
    end();
  }
}

/// Once, after the last byte was released.
void Frozen::end() {
  if (!is_added_.exchange(false)) return;
  if (guard_) guard_->remove(*chunks_);
  aside_->end_use();
  is_released_ = true;
}

void Frozen::release_all() {
  if (!chunks_ || is_released()) return;
  // A freeze that failed may have readers by then.
  is_dropped_ = true;
  while (readers_ > 0) std::this_thread::yield();
  steady_left_ = 0;
  chunks_->release_all();
  end();
}

FreezeTimings Frozen::timings() const {
  FreezeTimings timings;
  {
    const std::lock_guard lock(mutex_);
    timings = timings_;
  }
  if (!is_begun_) return timings;
  timings.fault_seconds = static_cast<double>(chunks_->fault_nanoseconds()) * 1e-9;
  timings.wait_seconds += static_cast<double>(chunks_->wait_nanoseconds()) * 1e-9;
  timings.aside_bytes = chunks_->aside_bytes();
  timings.peak_aside_bytes = chunks_->peak_aside_bytes();
  return timings;
}

}  // namespace

std::string why_not_protect() {
  try {
    (void)PageGuard::shared();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

std::uint64_t default_memory(std::uint32_t processes) {
  constexpr std::uint64_t at_least = std::uint64_t{64} << 20U;
  return std::max(at_least, available_memory() / 4 / std::max(processes, 1U));
}

class Freezer::Implementation {
 public:
  explicit Implementation(const FreezerOptions& options) : patience_(options.patience) {
    if (options.way == Way::copy) {
      why_never_ = "copying was asked for";
    } else {
      try {
        guard_ = PageGuard::shared();
      } catch (const Error& error) {
        if (options.way == Way::protect) throw;
        why_never_ = error.what();
      }
    }
    const std::uint64_t memory = options.memory == 0 ? default_memory(1) : options.memory;
    if (memory < cell_size) throw Error(Errc::invalid_argument, "less than 2 MiB of memory to set aside");
    aside_ = std::allocate_shared<AsideMemory>(MappedAllocator<AsideMemory>(), memory, guard_ == nullptr);
    if (guard_ == nullptr && options.ready) aside_->prepare(memory);
  }

  std::shared_ptr<FrozenMemory> prepare(std::vector<MemoryRange> ranges) {
    if (owner_ != ::getpid()) throw Error(Errc::invalid_argument, "what was made before a fork is the parent's");
    if (guard_ == nullptr) {
      aside_->prepare(std::accumulate(
          ranges.begin(), ranges.end(), std::uint64_t{0},
          [](std::uint64_t sum, const MemoryRange& range) { return sum + (range.steady ? 0 : range.size); }));
    }
    return std::make_shared<Frozen>(std::move(ranges), guard_, why_never_, aside_, patience_);
  }

 private:
  double patience_;
  pid_t owner_ = ::getpid();
  std::shared_ptr<PageGuard> guard_;
  std::string why_never_;
  std::shared_ptr<AsideMemory> aside_;
};

Freezer::Freezer(const FreezerOptions& options) : implementation_(std::make_shared<Implementation>(options)) {}
Freezer::~Freezer() = default;

std::shared_ptr<FrozenMemory> Freezer::prepare(std::vector<MemoryRange> ranges) {
  return implementation_->prepare(std::move(ranges));
}

}  // namespace ckpt::capture
