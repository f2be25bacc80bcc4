// SPDX-License-Identifier: Apache-2.0
// Copies from an accelerator are put in order by the device: after what its stream was given before, before what it's
// given next.
#include "fake_device.hpp"
#include "torch_support.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

using namespace torch_test;

namespace {

/// Work that overwrites a tensor.
std::function<void()> fill(const at::Tensor& tensor, float value) {
  auto* const to = static_cast<float*>(tensor.data_ptr());
  return [tensor, to, value] { std::fill_n(to, tensor.numel(), value); };
}

constexpr std::int64_t size = 1 << 18;

}  // namespace

TEST_CASE("what a stream does before and after the call is before and after the moment") {
  const unit_test::Scratch scratch;
  const at::Tensor on_device = fake_device::tensor_like(at::zeros({size}));
  const at::Tensor other = fake_device::tensor_like(at::full({3}, 8.0));
  const at::Tensor on_host = at::zeros({size});
  State state;
  state.add("device", on_device)
      .add("host", on_host)
      .add("other", other)
      .add("part", on_device.as_strided({2}, {4}, 8));
  Saver saver(options_for(scratch / "a"));
  std::vector<SaveHandle> handles;
  for (int step = 1; step <= 3; ++step) {
    const auto value = static_cast<float>(step);
    on_host.fill_(value);
    fake_device::enqueue(fake_device::current_stream(), fill(on_device, value));
    handles.push_back(saver.save(static_cast<std::uint64_t>(step), state));
    fake_device::enqueue(fake_device::current_stream(), fill(on_device, -1));
  }
  saver.close();
  for (int step = 1; step <= 3; ++step) {
    const Loader loader(scratch / "a", std::to_string(step));
    CHECK(same(loader.load("device"), at::full({size}, step, at::kFloat)));
    CHECK(same(loader.load("host"), at::full({size}, step, at::kFloat)));
    CHECK(same(loader.load("part"), at::full({2}, step, at::kFloat)));
    CHECK(same(loader.load("other"), at::full({3}, 8.0)));
  }
  fake_device::wait_for_all();
}

TEST_CASE("the call doesn't wait for the copies") {
  const unit_test::Scratch scratch;
  State state;
  state.add("a", fake_device::tensor_like(at::ones({size})));
  Saver saver(options_for(scratch / "a"));
  fake_device::enqueue(fake_device::current_stream(),
                       [] { std::this_thread::sleep_for(std::chrono::milliseconds(400)); });
  const SaveHandle handle = saver.save(1, state);
  CHECK(handle.state() == CKPT_STATE_STAGED);
  CHECK(failure_of([&] { handle.wait(0.01); }).code() == CKPT_TIMED_OUT);
  handle.wait();
  CHECK(handle.state() == CKPT_STATE_DURABLE);
}

TEST_CASE("another stream waits if it's told to") {
  const unit_test::Scratch scratch;
  const at::Tensor tensor = fake_device::tensor_like(at::full({size}, 3, at::kFloat));
  State state;
  state.add("a", tensor);
  Saver saver(options_for(scratch / "a"));
  const SaveHandle handle = saver.save(1, state);
  handle.before_update(fake_device::another_stream());
  fake_device::enqueue(fake_device::another_stream(), fill(tensor, -1));
  saver.before_update();
  saver.close();
  handle.before_update();
  CHECK(same(Loader(scratch / "a").load("a"), at::full({size}, 3, at::kFloat)));
  fake_device::wait_for_all();
}

TEST_CASE("a save waits for room in the host's memory") {
  const unit_test::Scratch scratch;
  SaverOptions options = options_for(scratch / "a");
  options.pinned = size * 4;
  Saver saver(options);
  std::vector<SaveHandle> handles;
  for (int step = 1; step <= 4; ++step) {
    State state;
    state.add("a", fake_device::tensor_like(at::full({size}, step, at::kFloat)));
    handles.push_back(saver.save(static_cast<std::uint64_t>(step), state));
    // There's room for one, so the one before has been read.
    if (step > 1) CHECK(handles[handles.size() - 2].state() != CKPT_STATE_STAGED);
  }
  saver.close();
  for (int step = 1; step <= 4; ++step) {
    CHECK(same(Loader(scratch / "a", std::to_string(step)).load("a"), at::full({size}, step, at::kFloat)));
  }
}
