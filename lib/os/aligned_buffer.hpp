// SPDX-License-Identifier: Apache-2.0
// Page-aligned memory for O_DIRECT.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>

namespace ckpt::os {

/// Offsets, lengths and addresses of direct I/O are multiples of this: the largest logical block size in use.
inline constexpr std::uint64_t direct_alignment = 4096;

/// Uninitialised; grows, never shrinks. Movable.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t capacity) { reserve(capacity); }

  [[nodiscard]] std::byte* data() const { return data_.get(); }
  [[nodiscard]] std::size_t capacity() const { return capacity_; }
  [[nodiscard]] std::span<std::byte> span() const { return {data_.get(), capacity_}; }

  /// The content is lost if it grows.
  void reserve(std::size_t capacity) {
    if (capacity <= capacity_) return;
    const std::size_t rounded = (capacity + direct_alignment - 1) / direct_alignment * direct_alignment;
    data_.reset();
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(direct_alignment, rounded)));
    if (data_ == nullptr) throw std::bad_alloc();
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
