// SPDX-License-Identifier: Apache-2.0
// A tensor as memory that is mapped from its container, where it's stored raw: nothing is copied, and what isn't
// looked at isn't kept in memory.
#pragma once

#include "ops/global_tensors.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace ckpt::ops {

/// A private mapping, which whoever has it may write to. Movable only.
class MappedTensor {
 public:
  /// Nothing if the tensor can't be mapped: it's encoded, in several parts, not contiguous, or lies at places that no
  /// row of pages can show. Reads and checks all blocks of it. Throws Damaged; io.
  [[nodiscard]] static std::optional<MappedTensor> map(const GlobalTensors& tensors, const GlobalTensor& tensor);

  MappedTensor(MappedTensor&& other) noexcept;
  MappedTensor& operator=(MappedTensor&&) = delete;
  ~MappedTensor();

  [[nodiscard]] std::byte* data() const { return pages_ + shift_; }
  [[nodiscard]] std::uint64_t size() const { return size_; }
  /// What must be unmapped, from now on by the caller.
  struct Pages {
    void* begin = nullptr;
    std::uint64_t size = 0;
  };
  [[nodiscard]] Pages release();

 private:
  MappedTensor(std::uint64_t shift, std::uint64_t size);

  std::byte* pages_ = nullptr;
  std::uint64_t length_ = 0;
  std::uint64_t shift_ = 0;
  std::uint64_t size_ = 0;
};

}  // namespace ckpt::ops
