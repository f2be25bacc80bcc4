// SPDX-License-Identifier: Apache-2.0
// An accelerator for tests on any machine: its memory is the host's, its streams are threads that do what they're given
// in order, and late. LibTorch calls it by the name that it keeps for devices of others, PrivateUse1.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <functional>

namespace fake_device {

/// A copy of a tensor of the host's.
[[nodiscard]] at::Tensor tensor_like(const at::Tensor& host);

/// Work for a stream, to be done after what it has.
void enqueue(const c10::Stream& stream, std::function<void()> work);
[[nodiscard]] c10::Stream current_stream();
[[nodiscard]] c10::Stream another_stream();
void wait_for_all();

}  // namespace fake_device
