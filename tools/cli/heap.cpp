// SPDX-License-Identifier: Apache-2.0
#include "cli/heap.hpp"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cstdint>
#include <cstdlib>

namespace ckpt::cli {
namespace {

constexpr int range = 192 << 20;
constexpr int mmap_threshold = 32 << 20;  // the most that glibc takes
constexpr std::size_t probe = std::size_t{1} << 20U;
constexpr std::uintptr_t huge_page = std::uintptr_t{2} << 20U;

}  // namespace

void prefer_huge_pages() {
#ifdef __GLIBC__
  // Large blocks come from the heap, too, and freed memory stays in it: each new mapping would be touched anew.
  if (mallopt(M_MMAP_THRESHOLD, mmap_threshold) == 0 || mallopt(M_TRIM_THRESHOLD, range) == 0) return;
  if (mallopt(M_TOP_PAD, range) == 0) return;
  void* memory = std::malloc(probe);  // the heap grows by this and by the padding
  const auto begin = (reinterpret_cast<std::uintptr_t>(memory) + huge_page - 1) & ~(huge_page - 1);
  const auto end = reinterpret_cast<std::uintptr_t>(::sbrk(0)) & ~(huge_page - 1);
  std::free(memory);
  (void)mallopt(M_TOP_PAD, 128 << 10);
  // Only a wish: a kernel without huge pages goes on with small ones, and so does a heap that grew elsewhere.
  if (memory != nullptr && begin < end && end - begin <= static_cast<std::uintptr_t>(range)) {
    (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
  }
#endif
}

}  // namespace ckpt::cli
