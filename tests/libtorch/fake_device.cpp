// SPDX-License-Identifier: Apache-2.0
#include "fake_device.hpp"

#include <ATen/ATen.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace fake_device {
namespace {

constexpr auto kind = c10::DeviceType::PrivateUse1;
constexpr c10::StreamId stream_count = 4;
const c10::Device device(kind, 0);

class Worker {
 public:
  Worker() : thread_([this] { run(); }) {}
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void add(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    changed_.notify_all();
  }
  void drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return queue_.empty(); });
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return is_over_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const auto work = queue_.front();
      lock.unlock();
      work();
      lock.lock();
      queue_.pop_front();
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool is_over_ = false;
  std::thread thread_;
};

Worker& worker(c10::StreamId id) {
  static Worker workers[stream_count];
  return workers[id];
}

thread_local c10::StreamId current = 0;

struct FakeEvent {
  std::shared_ptr<std::atomic<bool>> is_done;
};

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kind; }
  c10::Device exchangeDevice(c10::Device) const override { return device; }
  c10::Device getDevice() const override { return device; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const noexcept override {
    return c10::Stream(c10::Stream::UNSAFE, device, current);
  }
  c10::Stream getDefaultStream(c10::Device) const override { return c10::Stream(c10::Stream::UNSAFE, device, 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, stream_count - 1);
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    return c10::Stream(c10::Stream::UNSAFE, device, std::exchange(current, stream.id()));
  }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (*event == nullptr) *event = new FakeEvent;
    auto is_done = std::make_shared<std::atomic<bool>>(false);
    static_cast<FakeEvent*>(*event)->is_done = is_done;
    worker(stream.id()).add([is_done] { *is_done = true; });
  }
  void block(void* event, const c10::Stream& stream) const override {
    worker(stream.id()).add([is_done = static_cast<FakeEvent*>(event)->is_done] {
      while (!*is_done) std::this_thread::sleep_for(std::chrono::microseconds(100));
    });
  }
  bool queryEvent(void* event) const override { return *static_cast<FakeEvent*>(event)->is_done; }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<FakeEvent*>(event);
  }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

at::Tensor view_of(c10::Storage storage, caffe2::TypeMeta type, at::IntArrayRef sizes, at::IntArrayRef strides,
                   std::int64_t offset) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage),
                                                         c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type);
  tensor.unsafeGetTensorImpl()->set_storage_offset(offset);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef sizes, at::IntArrayRef strides,
                      c10::optional<std::int64_t> offset) {
  return view_of(self.storage(), self.dtype(), sizes, strides, offset.value_or(self.storage_offset()));
}

/// Late, so that who doesn't wait sees it.
at::Tensor& copy_to_host(at::Tensor& self, const at::Tensor& from, bool) {
  void* const to = self.data_ptr();
  const void* const source = from.data_ptr();
  worker(current).add([to, source, size = from.nbytes()] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    std::memcpy(to, source, size);
  });
  return self;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("as_strided", as_strided);
  library.impl("copy_", copy_to_host);
}

}  // namespace

at::Tensor tensor_like(const at::Tensor& host) {
  const at::Tensor plain = host.contiguous();
  void* const memory = std::malloc(std::max<std::size_t>(plain.nbytes(), 1));
  std::memcpy(memory, plain.data_ptr(), plain.nbytes());
  c10::Storage storage(c10::Storage::use_byte_size_t(), plain.nbytes(),
                       c10::DataPtr(memory, memory, &std::free, device), nullptr, false);
  return view_of(std::move(storage), plain.dtype(), plain.sizes(), plain.strides(), 0);
}

void enqueue(const c10::Stream& stream, std::function<void()> work) { worker(stream.id()).add(std::move(work)); }
c10::Stream current_stream() { return c10::Stream(c10::Stream::UNSAFE, device, current); }
c10::Stream another_stream() { return c10::Stream(c10::Stream::UNSAFE, device, 1); }
void wait_for_all() {
  for (c10::StreamId id = 0; id < stream_count; ++id) worker(id).drain();
}

}  // namespace fake_device
