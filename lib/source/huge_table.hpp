// SPDX-License-Identifier: Apache-2.0
// Vectors whose large blocks ask for huge pages. A checkpoint of 100,000 tensors fills tables of tens of megabytes, and
// touching them page by page costs more than all parsing; virtual machines make that worse.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <utility>
#include <vector>

namespace ckpt::source {

/// Elements that are made without a value stay uninitialised.
template <class T>
class HugeAllocator {
 public:
  using value_type = T;

  HugeAllocator() = default;
  template <class U>
  HugeAllocator(const HugeAllocator<U>&) {}  // NOLINT(google-explicit-constructor): allocators convert

  [[nodiscard]] T* allocate(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T) / 2) throw std::bad_alloc();
    const std::size_t size = count * sizeof(T);
    if (size < threshold) return static_cast<T*>(::operator new(size));
    const std::size_t mapped = rounded(size);
    void* const raw = mmap(nullptr, mapped + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) throw std::bad_alloc();
    // Huge pages are aligned; what the mapping has too much goes back.
    std::byte* const begin = static_cast<std::byte*>(raw);
    const std::size_t skipped = (page - reinterpret_cast<std::uintptr_t>(begin) % page) % page;
    std::byte* const aligned = begin + skipped;
    if (skipped > 0) static_cast<void>(munmap(begin, skipped));
    if (skipped < page) static_cast<void>(munmap(aligned + mapped, page - skipped));
    // Only advice: without huge pages it's slower and nothing else.
    static_cast<void>(madvise(aligned, mapped, MADV_HUGEPAGE));
    return reinterpret_cast<T*>(aligned);
  }

  void deallocate(T* from, std::size_t count) noexcept {
    const std::size_t size = count * sizeof(T);
    if (size < threshold) return ::operator delete(from);
    static_cast<void>(munmap(from, rounded(size)));
  }

  template <class U>
  void construct(U* at) {
    ::new (static_cast<void*>(at)) U;
  }
  template <class U, class... Args>
  void construct(U* at, Args&&... args) {
    ::new (static_cast<void*>(at)) U(std::forward<Args>(args)...);
  }

  friend bool operator==(const HugeAllocator&, const HugeAllocator&) { return true; }

 private:
  static constexpr std::size_t page = std::size_t{2} << 20U;
  static constexpr std::size_t threshold = page / 2;
  static constexpr std::size_t rounded(std::size_t size) { return (size + page - 1) / page * page; }
};

/// Asks for huge pages for the part of an ordinary vector's memory that can have them. Call it after reserve(), before
/// the memory is touched.
template <class T>
void advise_huge(std::vector<T>& table) {
  constexpr std::uintptr_t page = std::uintptr_t{2} << 20U;
  const auto begin = reinterpret_cast<std::uintptr_t>(table.data());
  const std::uintptr_t first = (begin + page - 1) / page * page;
  const std::uintptr_t last = (begin + table.capacity() * sizeof(T)) / page * page;
  if (last > first) static_cast<void>(madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE));
}

template <class T>
using HugeTable = std::vector<T, HugeAllocator<T>>;

}  // namespace ckpt::source
