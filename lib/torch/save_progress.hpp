// SPDX-License-Identifier: Apache-2.0
// One save on its way: what it holds until it's released, and how it went. The saver's thread takes it forward, and its
// handles ask.
#pragma once

#include "torch/device_copies.hpp"

#include <ckpt/torch_error.hpp>

#include <ATen/core/Tensor.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace ckpt::torch {

using Clock = std::chrono::steady_clock;
/// Nothing: for ever.
using Deadline = std::optional<Clock::time_point>;
[[nodiscard]] Deadline deadline_after(double seconds);
[[nodiscard]] double seconds_until(const Deadline& deadline);

/// Thread-safe but for what's said to be before it's shared.
class SaveProgress {
 public:
  SaveProgress(std::uint64_t step, ckpt_save* save) : step_(step), save_(save) {}
  SaveProgress(const SaveProgress&) = delete;
  SaveProgress& operator=(const SaveProgress&) = delete;
  ~SaveProgress();

  [[nodiscard]] std::uint64_t step() const { return step_; }

  // Before it's shared.
  [[nodiscard]] ckpt_save* raw() const { return save_; }
  void keep(at::Tensor tensor) { kept_.push_back(std::move(tensor)); }
  [[nodiscard]] DeviceCopies& copy_with(std::shared_ptr<HostBuffers> buffers);

  /// The moment. Throws, and has told of the failure then.
  void freeze();
  /// By one thread, again and again: starts the save when its copies are there, and lets go of what's released. True
  /// if there's nothing more to do.
  [[nodiscard]] bool advance();
  [[nodiscard]] bool is_started() const;

  [[nodiscard]] ckpt_state state() const;
  [[nodiscard]] bool is_over() const;
  /// Throws the failure, which counts as told, and CKPT_TIMED_OUT.
  void wait(const Deadline& deadline, bool until_durable);
  /// The same without counting as told or throwing the failure: false if the time is over.
  [[nodiscard]] bool wait_until_over(const Deadline& deadline);
  /// The failure that no one has been told of; it has been then.
  [[nodiscard]] std::optional<Error> untold_failure();
  [[nodiscard]] ckpt_timings timings() const;
  void before_update(const c10::Stream* stream);

 private:
  /// With the mutex held.
  void fail(const Error& failure);
  [[nodiscard]] int wait_for_library(const Deadline& deadline, bool until_durable);
  [[nodiscard]] bool wait_for_start(const Deadline& deadline);

  const std::uint64_t step_;
  ckpt_save* const save_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool frozen_ = false;  ///< or it failed
  bool started_ = false;
  bool told_ = false;
  std::optional<Error> failure_;
  std::vector<at::Tensor> kept_;
  std::shared_ptr<DeviceCopies> copies_;
};

}  // namespace ckpt::torch
