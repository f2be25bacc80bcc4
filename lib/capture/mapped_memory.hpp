// SPDX-License-Identifier: Apache-2.0
// Containers outside the heap. What the page guard's threads touch lives in mappings of its own: memory that the owner
// has freed meanwhile may still be write-protected, and malloc() would hand it to whoever must lift that protection.
#pragma once

#include <sys/mman.h>
#include <unistd.h>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace ckpt::capture {

[[nodiscard]] inline std::uintptr_t page_size() {
  static const auto size = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  return size;
}
[[nodiscard]] inline std::uintptr_t page_down(std::uintptr_t address) { return address & ~(page_size() - 1); }
[[nodiscard]] inline std::uintptr_t page_up(std::uintptr_t address) { return page_down(address + page_size() - 1); }

[[nodiscard]] inline std::byte* bytes_at(std::uintptr_t address) {
  return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr): the kernel speaks in numbers
}

/// Nothing if the system has no more. The kernel joins neighbouring mappings of the same kind, and whoever unmaps a
/// part of one that's watched for writers waits for the watcher. Which may be the one who unmaps: so these are of
/// another kind than anyone else's, by being left out of core dumps.
[[nodiscard]] inline void* map_memory(std::size_t size) noexcept {
  void* p = ::mmap(nullptr, page_up(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  (void)::madvise(p, page_up(size), MADV_DONTDUMP);
  return p;
}

/// Every allocation is a mapping: for few and large ones.
template <class T>
struct MappedAllocator {
  using value_type = T;
  MappedAllocator() = default;
  template <class U>
  MappedAllocator(const MappedAllocator<U>&) noexcept {}  // NOLINT: an allocator converts

  [[nodiscard]] T* allocate(std::size_t count) {
    if (count > SIZE_MAX / 2 / sizeof(T)) throw std::bad_alloc();
    void* p = map_memory(count * sizeof(T));
    if (p == nullptr) throw std::bad_alloc();
    return static_cast<T*>(p);
  }
  void deallocate(T* p, std::size_t count) noexcept { (void)::munmap(p, page_up(count * sizeof(T))); }
  template <class U>
  bool operator==(const MappedAllocator<U>&) const noexcept {
    return true;
  }
};

template <class T>
using MappedVector = std::vector<T, MappedAllocator<T>>;

/// Addresses [begin, end).
struct Interval {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;

  [[nodiscard]] std::uintptr_t size() const { return end - begin; }
  [[nodiscard]] bool empty() const { return begin >= end; }
};

/// Protection is lifted, memory copied and room counted in pieces that lie in one of these: one huge page each.
inline constexpr std::uintptr_t cell_size = std::uintptr_t{2} << 20U;

}  // namespace ckpt::capture
