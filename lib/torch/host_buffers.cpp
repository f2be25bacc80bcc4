// SPDX-License-Identifier: Apache-2.0
#include "torch/host_buffers.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace ckpt::torch {
namespace {

std::uint64_t size_of(const at::Tensor& buffer) { return static_cast<std::uint64_t>(buffer.numel()); }

at::Tensor host_memory(std::uint64_t size) {
  const auto options = at::TensorOptions().dtype(at::kByte);
  const auto count = static_cast<std::int64_t>(size);
  try {
    return at::empty({count}, options.pinned_memory(true));
  } catch (const c10::Error&) {  // pinned memory is short, or this LibTorch has none
    return at::empty({count}, options);
  }
}

}  // namespace

void HostBuffers::reserve(std::uint64_t size) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return out_ == 0 || (size <= limit_ && out_ <= limit_ - size); });
  out_ += size;
}

at::Tensor HostBuffers::take(std::uint64_t size) {
  std::vector<at::Tensor> let_go;
  {
    const std::lock_guard lock(mutex_);
    // The smallest that's large enough, without wasting half of it.
    auto best = free_.end();
    std::uint64_t kept = 0;
    for (auto i = free_.begin(); i != free_.end(); ++i) {
      kept += size_of(*i);
      if (size_of(*i) < size || size_of(*i) / 2 > size) continue;
      if (best == free_.end() || size_of(*i) < size_of(*best)) best = i;
    }
    if (best != free_.end()) {
      at::Tensor buffer = std::move(*best);
      free_.erase(best);
      return buffer;
    }
    while (!free_.empty() && out_ + kept > limit_) {
      kept -= size_of(free_.front());
      let_go.push_back(std::move(free_.front()));
      free_.erase(free_.begin());
    }
  }
  let_go.clear();
  return host_memory(size);
}

void HostBuffers::give_back(std::vector<at::Tensor> buffers, std::uint64_t reserved) {
  const std::lock_guard lock(mutex_);
  out_ -= reserved;
  std::move(buffers.begin(), buffers.end(), std::back_inserter(free_));
  changed_.notify_all();
}

}  // namespace ckpt::torch
