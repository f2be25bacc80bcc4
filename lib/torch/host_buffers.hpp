// SPDX-License-Identifier: Apache-2.0
// Host memory that accelerators copy to. It's used again, since pinning takes long; and it's bounded.
#pragma once

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

namespace ckpt::torch {

/// Thread-safe.
class HostBuffers {
 public:
  /// No more than `limit` bytes are out at a time, unless one save takes more than that.
  explicit HostBuffers(std::uint64_t limit) : limit_(limit) {}

  /// Waits for room.
  void reserve(std::uint64_t size);
  /// One of at least `size` bytes, of what was reserved; pinned where that's possible.
  [[nodiscard]] at::Tensor take(std::uint64_t size);
  void give_back(std::vector<at::Tensor> buffers, std::uint64_t reserved);

 private:
  const std::uint64_t limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t out_ = 0;
  std::vector<at::Tensor> free_;
};

}  // namespace ckpt::torch
