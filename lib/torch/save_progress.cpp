// SPDX-License-Identifier: Apache-2.0
#include "torch/save_progress.hpp"

#include "torch/checked.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace ckpt::torch {

Deadline deadline_after(double seconds) {
  constexpr double longest = 1e9;
  if (!(seconds >= 0) || seconds > longest) return std::nullopt;
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

double seconds_until(const Deadline& deadline) {
  if (!deadline) return -1;
  return std::max(0.0, std::chrono::duration<double>(*deadline - Clock::now()).count());
}

SaveProgress::~SaveProgress() { ckpt_save_free(save_); }

DeviceCopies& SaveProgress::copy_with(std::shared_ptr<HostBuffers> buffers) {
  copies_ = std::make_shared<DeviceCopies>(std::move(buffers));
  return *copies_;
}

void SaveProgress::freeze() {
  const int status = ckpt_save_freeze(save_);
  std::optional<Error> failure;
  if (status != CKPT_OK) failure = last_error(status);
  const std::lock_guard lock(mutex_);
  frozen_ = true;
  if (failure) {
    fail(*failure);
    told_ = true;
    throw *failure;
  }
}

void SaveProgress::fail(const Error& failure) {
  if (!failure_) failure_ = failure;
  changed_.notify_all();
}

bool SaveProgress::is_started() const {
  const std::lock_guard lock(mutex_);
  return started_ || failure_;
}

bool SaveProgress::advance() {
  std::unique_lock lock(mutex_);
  if (!started_ && !failure_) {
    try {
      if (copies_ && !copies_->are_done()) return false;
      check(ckpt_save_start(save_));
      started_ = true;
    } catch (const Error& error) {
      fail(error);
    } catch (const std::exception& error) {
      fail({CKPT_IO, "cannot copy from an accelerator: " + std::string(error.what())});
    }
    changed_.notify_all();
  }
  // A save that was never started is looked at by nobody once it has its moment.
  if (started_ ? ckpt_save_released(save_) == 0 : !frozen_) return false;
  std::vector<at::Tensor> kept = std::move(kept_);
  kept_.clear();
  std::shared_ptr<DeviceCopies> copies = std::move(copies_);
  copies_.reset();
  lock.unlock();
  return true;
}

ckpt_state SaveProgress::state() const {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return CKPT_STATE_FAILED;
  }
  return ckpt_save_state(save_);
}

bool SaveProgress::is_over() const {
  const ckpt_state now = state();
  return now == CKPT_STATE_WRITTEN || now == CKPT_STATE_DURABLE || now == CKPT_STATE_FAILED ||
         now == CKPT_STATE_SKIPPED;
}

bool SaveProgress::wait_for_start(const Deadline& deadline) {
  std::unique_lock lock(mutex_);
  const auto is_past = [&] { return started_ || failure_; };
  if (deadline) return changed_.wait_until(lock, *deadline, is_past);
  changed_.wait(lock, is_past);
  return true;
}

/// CKPT_OK, CKPT_TIMED_OUT, or the failure's code, which is kept.
int SaveProgress::wait_for_library(const Deadline& deadline, bool until_durable) {
  if (!wait_for_start(deadline)) return CKPT_TIMED_OUT;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return failure_->code();
  }
  const int status = ckpt_save_wait(save_, seconds_until(deadline), until_durable ? 1 : 0);
  if (status == CKPT_OK || status == CKPT_TIMED_OUT) return status;
  const Error failure = last_error(status);
  const std::lock_guard lock(mutex_);
  fail(failure);
  return status;
}

void SaveProgress::wait(const Deadline& deadline, bool until_durable) {
  const int status = wait_for_library(deadline, until_durable);
  if (status == CKPT_OK) return;
  if (status == CKPT_TIMED_OUT) throw Error(CKPT_TIMED_OUT, "step " + std::to_string(step_) + " isn't durable yet");
  const std::lock_guard lock(mutex_);
  told_ = true;
  throw Error(*failure_);
}

bool SaveProgress::wait_until_over(const Deadline& deadline) {
  return wait_for_library(deadline, false) != CKPT_TIMED_OUT;
}

std::optional<Error> SaveProgress::untold_failure() {
  if (state() == CKPT_STATE_FAILED) (void)wait_until_over(Clock::now());
  const std::lock_guard lock(mutex_);
  if (!failure_ || told_) return std::nullopt;
  told_ = true;
  return failure_;
}

ckpt_timings SaveProgress::timings() const {
  ckpt_timings timings{};
  timings.struct_size = sizeof timings;
  check(ckpt_save_timings(save_, &timings));
  return timings;
}

void SaveProgress::before_update(const c10::Stream* stream) {
  std::shared_ptr<DeviceCopies> copies;
  {
    const std::lock_guard lock(mutex_);
    copies = copies_;
  }
  if (!copies) return;
  if (stream != nullptr) {
    copies->before_update(*stream);
  } else {
    copies->before_update();
  }
}

}  // namespace ckpt::torch
