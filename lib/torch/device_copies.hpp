// SPDX-License-Identifier: Apache-2.0
// Brings storages of accelerators to the host as they are at the call, whatever the device: through the streams and
// events that c10 has for all of them. A copy runs on a stream of its own, after what the current stream has been given
// so far; whoever overwrites the source later waits for it on the device, not on the host.
#pragma once

#include "torch/host_buffers.hpp"

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace ckpt::torch {

/// The streams that a saver copies on, one a device. Not thread-safe.
class CopyStreams {
 public:
  /// Nothing for a device that has no streams: its copies are done when they return.
  [[nodiscard]] std::optional<c10::Stream> on(c10::Device device);

 private:
  std::map<std::pair<int, int>, std::optional<c10::Stream>> streams_;
};

/// The copies of one save. Thread-safe but for begin().
class DeviceCopies {
 public:
  explicit DeviceCopies(std::shared_ptr<HostBuffers> buffers) : buffers_(std::move(buffers)) {}
  DeviceCopies(const DeviceCopies&) = delete;
  DeviceCopies& operator=(const DeviceCopies&) = delete;
  /// Waits for copies that still run, and gives the buffers back.
  ~DeviceCopies();

  /// One for each storage: any tensor on it. Begins to copy the whole storages; once. Waits for room, not for the
  /// copies, which `streams` runs. Sizes must be multiples of the tensors' elements. The result is uint8 and lies in
  /// the host's memory, for as long as this object lives.
  [[nodiscard]] std::vector<at::Tensor> begin(const std::vector<at::Tensor>& sources, CopyStreams& streams);

  /// Throws what the device says.
  [[nodiscard]] bool are_done();
  /// Makes the current stream of each device, or this stream, wait for them.
  void before_update();
  void before_update(const c10::Stream& stream);

 private:
  void copy(c10::Device device, const std::vector<std::pair<at::Tensor, at::Tensor>>& pairs, CopyStreams& streams);

  const std::shared_ptr<HostBuffers> buffers_;
  std::uint64_t reserved_ = 0;
  std::vector<at::Tensor> taken_;
  struct Running {
    c10::Device device;
    c10::Event event;
  };
  std::mutex mutex_;  // events aren't thread-safe
  std::vector<Running> running_;
};

}  // namespace ckpt::torch
