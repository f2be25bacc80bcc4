// SPDX-License-Identifier: Apache-2.0
#include "torch/device_copies.hpp"

#include "torch/checked.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace ckpt::torch {
namespace {

/// Many small storages share a buffer, each at a multiple of this.
constexpr std::uint64_t alignment = 64;
constexpr std::uint64_t pack_size = std::uint64_t{256} << 20U;

std::uint64_t room_for(std::uint64_t size) { return (size + alignment - 1) / alignment * alignment; }

/// The whole storage as one row of the tensor's elements.
at::Tensor row_of(const at::Tensor& tensor) {
  const auto bytes = static_cast<std::int64_t>(tensor.storage().nbytes());
  const auto width = static_cast<std::int64_t>(tensor.element_size());
  if (bytes % width != 0) refuse(CKPT_UNSUPPORTED, "a device's storage ends within an element");
  return tensor.detach().as_strided({bytes / width}, {1}, 0);
}

}  // namespace

std::optional<c10::Stream> CopyStreams::on(c10::Device device) {
  const std::pair<int, int> key{static_cast<int>(device.type()), device.index()};
  const auto known = streams_.find(key);
  if (known != streams_.end()) return known->second;
  std::optional<c10::Stream> stream;
  try {
    const c10::impl::VirtualGuardImpl impl(device.type());
    stream = impl.getStreamFromGlobalPool(device, false);
    c10::Event event(device.type());
    event.record(*stream);
  } catch (const c10::Error&) {
    stream.reset();
  }
  streams_.emplace(key, stream);
  return stream;
}

std::vector<at::Tensor> DeviceCopies::begin(const std::vector<at::Tensor>& sources, CopyStreams& streams) {
  // By device, so that each buffer is filled by one.
  std::vector<std::size_t> order(sources.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto key = [&](std::size_t i) {
    const c10::Device device = sources[i].device();
    return std::pair<int, int>{static_cast<int>(device.type()), device.index()};
  };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
  std::uint64_t all = 0;
  for (const at::Tensor& source : sources) all += room_for(source.storage().nbytes());
  buffers_->reserve(all);
  reserved_ = all;

  std::vector<at::Tensor> hosts(sources.size());
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs;  // of one device: to and from
  for (std::size_t i = 0; i < order.size();) {
    std::size_t end = i;
    std::uint64_t size = 0;
    while (end < order.size() && key(order[end]) == key(order[i])) {
      const std::uint64_t next = room_for(sources[order[end]].storage().nbytes());
      if (end > i && size + next > pack_size) break;
      size += next;
      ++end;
    }
    at::Tensor buffer = buffers_->take(size);
    taken_.push_back(buffer);
    std::int64_t at = 0;
    for (std::size_t j = i; j < end; ++j) {
      const at::Tensor row = row_of(sources[order[j]]);
      const auto bytes = static_cast<std::int64_t>(row.nbytes());
      hosts[order[j]] = buffer.narrow(0, at, bytes);
      pairs.emplace_back(hosts[order[j]].view(row.scalar_type()), row);
      at += static_cast<std::int64_t>(room_for(static_cast<std::uint64_t>(bytes)));
    }
    if (end == order.size() || key(order[end]) != key(order[i])) {
      copy(sources[order[i]].device(), pairs, streams);
      pairs.clear();
    }
    i = end;
  }
  return hosts;
}

void DeviceCopies::copy(c10::Device device, const std::vector<std::pair<at::Tensor, at::Tensor>>& pairs,
                        CopyStreams& streams) {
  const at::NoGradGuard no_grad;
  const std::optional<c10::Stream> own = streams.on(device);
  if (!own) {
    for (const auto& [to, from] : pairs) to.copy_(from);
    return;
  }
  const c10::impl::VirtualGuardImpl impl(device.type());
  const c10::Stream current = impl.getStream(device);
  c10::Event before(device.type());
  before.record(current);
  before.block(*own);
  const std::lock_guard lock(mutex_);
  running_.push_back({device, c10::Event(device.type())});
  c10::Event& done = running_.back().event;
  try {
    const c10::StreamGuard guard(*own);
    for (const auto& [to, from] : pairs) {
      to.copy_(from, true);
      // The allocator mustn't give the source away before the copy is done.
      impl.recordDataPtrOnStream(from.storage().data_ptr(), *own);
    }
  } catch (...) {
    done.record(*own);
    throw;
  }
  done.record(*own);
  done.block(current);
}

bool DeviceCopies::are_done() {
  const std::lock_guard lock(mutex_);
  return std::all_of(running_.begin(), running_.end(), [](const Running& one) { return one.event.query(); });
}

void DeviceCopies::before_update() {
  const std::lock_guard lock(mutex_);
  for (const Running& one : running_) {
    const c10::impl::VirtualGuardImpl impl(one.device.type());
    one.event.block(impl.getStream(one.device));
  }
}

void DeviceCopies::before_update(const c10::Stream& stream) {
  const std::lock_guard lock(mutex_);
  for (const Running& one : running_) {
    if (one.device.type() == stream.device_type()) one.event.block(stream);
  }
}

DeviceCopies::~DeviceCopies() {
  try {
    while (!are_done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  } catch (const std::exception&) {  // a device in that state copies nothing any more
  }
  buffers_->give_back(std::move(taken_), reserved_);
}

}  // namespace ckpt::torch
