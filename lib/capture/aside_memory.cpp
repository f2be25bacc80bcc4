// SPDX-License-Identifier: Apache-2.0
#include "capture/aside_memory.hpp"

#include "core/pipeline.hpp"
#include "os/fd.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace ckpt::capture {
namespace {

/// So many free slots stay in any case.
constexpr std::size_t cached_slots = 8;

void populate(std::byte* memory, std::size_t size) noexcept {
  constexpr int populate_write = 23;  // MADV_POPULATE_WRITE, since Linux 5.14
  if (::madvise(memory, size, populate_write) == 0) return;
  for (std::size_t at = 0; at < size; at += page_size()) memory[at] = std::byte{0};
}

}  // namespace

AsideMemory::AsideMemory(std::uint64_t budget, bool keep) : budget_(budget), keep_(keep) {
  const std::uint64_t count = budget / cell_size;
  if (count > UINT32_MAX) throw Error(Errc::invalid_argument, "more memory to set aside than any machine has");
  ready_.reserve(count);
  bare_.reserve(count);
  for (std::uint64_t i = count; i > 0; --i) bare_.push_back(static_cast<std::uint32_t>(i - 1));
  reserved_size_ = (count + 1) * cell_size;
  void* p = ::mmap(nullptr, reserved_size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) os::throw_errno(errno, "cannot reserve memory to set aside");
  reserved_ = static_cast<std::byte*>(p);
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  slots_ = reserved_ + ((address + cell_size - 1) / cell_size * cell_size - address);
  (void)::madvise(slots_, count * cell_size, MADV_HUGEPAGE);
  (void)::madvise(reserved_, reserved_size_, MADV_DONTFORK);  // a child has no use for it
}

AsideMemory::~AsideMemory() { (void)::munmap(reserved_, reserved_size_); }

std::uint64_t AsideMemory::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

void AsideMemory::begin_use() noexcept {
  const std::lock_guard lock(mutex_);
  ++users_;
}

void AsideMemory::end_use() noexcept {
  {
    const std::lock_guard lock(mutex_);
    --users_;
  }
  while (true) {  // one at a time: others want the lock, too
    const std::lock_guard lock(mutex_);
    if (keep_ || users_ > 0 || ready_.size() <= cached_slots) return;
    drop_one_ready();
  }
}

/// With the lock.
void AsideMemory::drop_one_ready() noexcept {
  const std::uint32_t index = ready_.back();
  ready_.pop_back();
  (void)::madvise(slot(index), cell_size, MADV_DONTNEED);
  bare_.push_back(index);
}

void AsideMemory::prepare(std::uint64_t size) {
  MappedVector<std::uint32_t> taken;
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t count = (size + cell_size - 1) / cell_size;
    const std::uint64_t ready = ready_.size() + used_ / cell_size;
    const std::uint64_t room = (budget_ - used_) / cell_size;
    if (count <= ready || room <= ready_.size()) return;
    taken.resize(std::min({count - ready, room - ready_.size(), std::uint64_t{bare_.size()}}));
    for (std::uint32_t& index : taken) {
      index = bare_.back();
      bare_.pop_back();
    }
    used_ += taken.size() * cell_size;
  }
  run_parallel(taken.size(), std::min(worker_count(0), 8U),
               [&](std::size_t i) { populate(slot(taken[i]), cell_size); });
  {
    const std::lock_guard lock(mutex_);
    used_ -= taken.size() * cell_size;
    for (const std::uint32_t index : taken) ready_.push_back(index);
    ++changes_;
  }
  changed_.notify_all();
}

std::byte* AsideMemory::take(std::uint64_t size) noexcept {
  std::unique_lock lock(mutex_);
  if (size == cell_size) {
    if (used_ + size > budget_) return nullptr;
    MappedVector<std::uint32_t>& from = ready_.empty() ? bare_ : ready_;
    if (from.empty()) return nullptr;
    const std::uint32_t index = from.back();
    from.pop_back();
    used_ += size;
    return slot(index);
  }
  // Small ones have mappings of their own, so that they take no more than they need.
  size = page_up(size);
  while (used_ + ready_.size() * cell_size + size > budget_ && !ready_.empty()) drop_one_ready();
  if (used_ + size > budget_) return nullptr;
  used_ += size;
  lock.unlock();
  void* p = map_memory(size);
  if (p != nullptr) return static_cast<std::byte*>(p);
  lock.lock();
  used_ -= size;
  return nullptr;
}

void AsideMemory::give_back(std::byte* memory, std::uint64_t size) noexcept {
  if (size < cell_size) {
    size = page_up(size);
    (void)::munmap(memory, size);
  }
  {
    const std::lock_guard lock(mutex_);
    used_ -= size;
    if (size == cell_size) {
      ready_.push_back(static_cast<std::uint32_t>(static_cast<std::size_t>(memory - slots_) / cell_size));
      if (!keep_ && users_ == 0 && ready_.size() > cached_slots) drop_one_ready();
    }
    ++changes_;
  }
  changed_.notify_all();
}

bool AsideMemory::has_room(std::uint64_t size) const noexcept {
  const std::lock_guard lock(mutex_);
  return used_ + page_up(size) <= budget_;
}

std::uint64_t AsideMemory::changes() const noexcept {
  const std::lock_guard lock(mutex_);
  return changes_;
}

void AsideMemory::note_change() noexcept {
  {
    const std::lock_guard lock(mutex_);
    ++changes_;
  }
  changed_.notify_all();
}

bool AsideMemory::wait_for_change(std::uint64_t seen, std::chrono::steady_clock::time_point until) noexcept {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, until, [&] { return changes_ != seen; });
}

}  // namespace ckpt::capture
