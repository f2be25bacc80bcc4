// SPDX-License-Identifier: Apache-2.0
// Page-aligned memory for O_DIRECT.
#pragma once

#include <sys/mman.h>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <utility>

namespace ckpt::os {

/// Offsets, lengths and addresses of direct I/O are multiples of this: the largest logical block size in use.
inline constexpr std::uint64_t direct_alignment = 4096;

/// Uninitialised; grows, never shrinks. Movable.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t capacity) { reserve(capacity); }
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::move(other.data_)), capacity_(std::exchange(other.capacity_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    data_ = std::move(other.data_);
    capacity_ = std::exchange(other.capacity_, 0);
    return *this;
  }
  ~AlignedBuffer() = default;

  [[nodiscard]] std::byte* data() const { return data_.get(); }
  [[nodiscard]] std::size_t capacity() const { return capacity_; }
  [[nodiscard]] std::span<std::byte> span() const { return {data_.get(), capacity_}; }

  /// The content is lost if it grows.
  void reserve(std::size_t capacity) {
    if (capacity <= capacity_) return;
    // First-touching a page is dear in a virtual machine, and so is telling a device of many: what fills a good part of
    // a huge one asks for it.
    constexpr std::size_t huge_page = std::size_t{2} << 20U;
    const std::size_t alignment = capacity >= huge_page / 4 ? huge_page : direct_alignment;
    const std::size_t rounded = (capacity + alignment - 1) / alignment * alignment;
    data_.reset();
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, rounded)));
    if (data_ == nullptr) throw std::bad_alloc();
    if (alignment == huge_page) (void)::madvise(data_.get(), rounded, MADV_HUGEPAGE);
    capacity_ = rounded;
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t capacity_ = 0;
};

}  // namespace ckpt::os
