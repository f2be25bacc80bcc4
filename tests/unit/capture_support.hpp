// SPDX-License-Identifier: Apache-2.0
// Memory to freeze, and what it must read as afterwards.
#pragma once

#include "capture/freezer.hpp"
#include "slowness.hpp"

#include <sys/mman.h>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace capture_test {

inline constexpr std::size_t mib = std::size_t{1} << 20U;
using unit_test::slowness;

inline constexpr std::size_t kib = std::size_t{1} << 10U;

/// A mapping of its own.
class Mapped {
 public:
  explicit Mapped(std::size_t size, int flags = MAP_PRIVATE | MAP_ANONYMOUS, int fd = -1) : size_(size) {
    void* p = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<std::byte*>(p);
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  ~Mapped() {
    if (data_ != nullptr) (void)::munmap(data_, size_);
  }
  /// Unmaps the rest.
  void shrink(std::size_t size) {
    (void)::munmap(data_ + size, size_ - size);
    size_ = size;
  }
  /// The rest is someone else's by now.
  void forget(std::size_t size) { size_ = size; }
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  /// Different for every word and seed.
  void fill(std::uint64_t seed) { fill(seed, 0, size_); }
  void fill(std::uint64_t seed, std::size_t begin, std::size_t end) {
    for (std::size_t at = begin; at + 8 <= end; at += 8) {
      const std::uint64_t word = (seed + 1) * 0x9e3779b97f4a7c15ULL + at;
      std::memcpy(data_ + at, &word, 8);
    }
  }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

using Contents = std::vector<std::vector<std::byte>>;

[[nodiscard]] inline Contents contents_of(const std::vector<ckpt::capture::MemoryRange>& ranges) {
  Contents contents;
  for (const auto& range : ranges) contents.emplace_back(range.begin, range.begin + range.size);
  return contents;
}

/// Reads all in pieces of `piece` bytes, and releases each. The number of pieces that differ.
[[nodiscard]] inline int differing_pieces(ckpt::capture::FrozenMemory& memory, const Contents& expected,
                                          std::size_t piece = 300 * kib) {
  int differing = 0;
  std::vector<std::byte> buffer(piece);
  for (std::size_t range = 0; range < memory.count(); ++range) {
    for (std::size_t at = 0; at < expected[range].size(); at += piece) {
      const std::size_t n = std::min(piece, expected[range].size() - at);
      memory.read(range, at, {buffer.data(), n});
      if (std::memcmp(buffer.data(), expected[range].data() + at, n) != 0) ++differing;
      memory.release(range, at, n);
    }
  }
  return differing;
}

/// The ways that are possible here.
[[nodiscard]] inline std::vector<ckpt::capture::Way> ways() {
  std::vector<ckpt::capture::Way> ways = {ckpt::capture::Way::copy};
  if (ckpt::capture::why_not_protect().empty()) ways.push_back(ckpt::capture::Way::protect);
  return ways;
}

/// Says so where pages can't be protected.
[[nodiscard]] inline bool can_protect() {
  const std::string why = ckpt::capture::why_not_protect();
  if (!why.empty()) MESSAGE("skipped: ", why);
  return why.empty();
}

}  // namespace capture_test
