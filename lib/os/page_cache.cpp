// SPDX-License-Identifier: Apache-2.0
// cachestat(2) of Linux 6.5 and later, mincore(2) on a mapping that is never touched before that. A read with
// RWF_NOWAIT would not do: it starts read-ahead for what it doesn't find.
#include "os/page_cache.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <optional>
#include <vector>

namespace ckpt::os {
namespace {

constexpr std::uint64_t page = 4096;
constexpr long cachestat_number = 451;  // the same on all architectures; older headers don't name it

struct CachestatRange {
  std::uint64_t offset;
  std::uint64_t length;
};
struct Cachestat {
  std::uint64_t cached;
  std::uint64_t dirty;
  std::uint64_t writeback;
  std::uint64_t evicted;
  std::uint64_t recently_evicted;
};

std::optional<std::uint64_t> cached_pages(const Fd& fd, std::uint64_t offset, std::uint64_t size) {
  const CachestatRange range{.offset = offset, .length = size};
  Cachestat stat{};
  if (::syscall(cachestat_number, fd.get(), &range, &stat, 0U) != 0) return std::nullopt;
  return stat.cached;
}

bool all_in_core(const Fd& fd, std::uint64_t begin, std::uint64_t pages) {
  void* map = ::mmap(nullptr, pages * page, PROT_READ, MAP_SHARED, fd.get(), static_cast<off_t>(begin));
  if (map == MAP_FAILED) return true;
  std::vector<unsigned char> resident(pages);
  const bool known = ::mincore(map, pages * page, resident.data()) == 0;
  ::munmap(map, pages * page);
  return !known || std::all_of(resident.begin(), resident.end(), [](unsigned char r) { return (r & 1U) != 0; });
}

}  // namespace

bool is_cached(const Fd& fd, std::uint64_t offset, std::uint64_t size) {
  if (size == 0) return true;
  const std::uint64_t begin = offset / page * page;
  const std::uint64_t pages = (offset + size - begin + page - 1) / page;
  if (const auto cached = cached_pages(fd, begin, pages * page)) return *cached >= pages;
  return all_in_core(fd, begin, pages);
}

}  // namespace ckpt::os
