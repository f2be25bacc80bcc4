// SPDX-License-Identifier: Apache-2.0
/// Saves a training's state while it goes on:
///
///     ckpt::torch::SaverOptions options;
///     options.store = "runs/a";
///     ckpt::torch::Saver saver(options);
///     for (...) {
///       ...
///       if (step % 100 == 0) saver.save(step, state);
///     }
///     saver.close();
///
/// save() returns after milliseconds, and from then on all may be overwritten: pages of host memory are
/// write-protected and copied aside only when someone is about to change them; what is on accelerators is on its way
/// to the host by copies that the device puts in order. A thread does the rest. No rank waits for another.
#pragma once

#include <ckpt/torch_error.hpp>
#include <ckpt/torch_state.hpp>

#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt::torch {

/// Sizes in bytes. Names and meanings as in ckpt.h.
struct SaverOptions {
  std::string store;  ///< made if it isn't there
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  std::uint64_t attempt = CKPT_UNSET;       ///< the highest that the store records
  std::uint64_t resumed_from = CKPT_UNSET;  ///< else newer steps of lower attempts are retired with the first save
  std::string encode = "fast";              ///< "raw", "fast" or "best"
  bool use_base = true;                     ///< false: nothing is kept as a difference to an earlier step
  bool check = true;                        ///< what was encoded is decoded and compared
  ckpt_capture capture = CKPT_CAPTURE_AUTO;
  std::uint64_t memory = 0;             ///< that may be set aside; 0: a quarter of what this process may still take
  std::uint64_t pinned = 0;             ///< host memory for copies from accelerators; 0: a quarter of the machine's
  std::uint32_t local_world_size = 1;   ///< processes on this node, which share both quarters
  std::uint32_t jobs = 0;               ///< threads that read, hash and encode; 0: all cores but one
  std::int64_t fixed_time = INT64_MIN;  ///< else recorded for the clock: reproducible stores
  /// Patterns (fnmatch over the whole name) of tensors that are the same on every rank: each is written by one rank
  /// only, which its name decides.
  std::vector<std::string> replicated;
};

class SaveProgress;

/// One save, on its way. Thread-safe; copies are the same save, and may outlive the saver.
class CKPT_TORCH_API SaveHandle {
 public:
  [[nodiscard]] std::uint64_t step() const;
  /// Anything from CKPT_STATE_STAGED on: what was saved may be overwritten.
  [[nodiscard]] ckpt_state state() const;
  /// Nothing more happens on this rank: its shard is safe, or the save failed or was skipped.
  [[nodiscard]] bool done() const;
  /// Returns when the checkpoint is durable (with several ranks: when all have written), or was skipped. Throws the
  /// save's failure, which then counts as told; CKPT_TIMED_OUT after `timeout` seconds (negative: never), while the
  /// work goes on.
  void wait(double timeout = -1) const;
  /// How long what took, in seconds, and how many bytes went which way. The copies from accelerators are not in it.
  [[nodiscard]] ckpt_timings timings() const;
  /// Makes a stream of an accelerator wait for this save's copies before what it's given next. save() does that itself
  /// for the stream that was current then; call it for others that overwrite what was saved, and before a graph is
  /// replayed. Without a stream: the current one of each device that is copied from.
  void before_update() const;
  void before_update(const c10::Stream& stream) const;

 private:
  friend class Saver;
  explicit SaveHandle(std::shared_ptr<SaveProgress> progress);
  std::shared_ptr<SaveProgress> progress_;
};

/// Under ckpt-run (NOTIFY_SOCKET and CKPT_CONTROL are set) it's also this rank's line to its supervisor: step() and
/// extend_timeout() go there, and signs of life while the bytes of a save move.
///
/// Thread-safe; one save() at a time. A fork's child can do nothing with its parent's but destroy it.
class CKPT_TORCH_API Saver {
 public:
  /// Opens the store and starts the threads: what is slow happens here, not in the first save. Throws Error,
  /// also for a variable of the supervisor's that is malformed.
  explicit Saver(const SaverOptions& options);
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;
  /// Waits as close() does, and keeps failures to itself.
  ~Saver();

  /// Saves what `state` holds now. Tensors are kept alive as long as they're looked at; their storages mustn't be
  /// resized meanwhile. Accelerators go on, too: copies come after what the current streams have been given, and these
  /// wait for them on the device. If there's no room for them in the host's memory (`pinned`), it blocks until earlier
  /// saves make some.
  ///
  /// Throws the failure of an earlier save that no one has been told of, and saves nothing then. Error with
  /// CKPT_INVALID (a step or name that can't be, an undefined tensor) and CKPT_UNSUPPORTED (a sparse, quantised or
  /// nested tensor, or one without memory) name the tensor.
  SaveHandle save(std::uint64_t step, const State& state);

  /// Tells the supervisor that a step is finished and how it goes (`status`: "loss 1.93", a line of 200 bytes at most).
  /// Returns what it asks for, of all ranks at the same step: CKPT_REQUEST_SAVE: save() this step; CKPT_REQUEST_STOP:
  /// save() it, close(), and end the process with 0. Without a supervisor always CKPT_REQUEST_NONE. Call it once after
  /// each step, with growing numbers.
  ckpt_request step(std::uint64_t step, std::string_view status = {});
  /// Tells it that what follows, an evaluation say, takes up to so many seconds: this rank isn't taken for dead before.
  void extend_timeout(double seconds);

  /// SaveHandle::before_update() of all saves that are on their way.
  void before_update();
  void before_update(const c10::Stream& stream);

  /// Waits until all that was saved is safe on this rank. Throws what failed, or CKPT_TIMED_OUT.
  void wait(double timeout = -1);
  /// Saves that are neither safe nor failed.
  [[nodiscard]] std::size_t pending() const;
  /// Waits as wait() does, then ends the threads; on CKPT_TIMED_OUT all stays as it was. A failure that no one has been
  /// told of is thrown after all else is done. Closing again does nothing.
  void close(double timeout = -1);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace ckpt::torch
