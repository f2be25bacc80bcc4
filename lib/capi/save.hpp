// SPDX-License-Identifier: Apache-2.0
// One save: named and described by its caller, frozen at one moment, written by its saver's thread.
#pragma once

#include "capi/captured_files.hpp"
#include "capi/saver.hpp"
#include "capi/status.hpp"
#include "capture/freezer.hpp"

#include <ckpt/ckpt.h>
#include <ckpt/save.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace ckpt::capi {

using Clock = std::chrono::steady_clock;
/// Nothing: for ever.
using Deadline = std::optional<Clock::time_point>;
[[nodiscard]] Deadline deadline_after(double seconds);

/// Thread-safe as ckpt.h says.
class Save : public std::enable_shared_from_this<Save> {
 public:
  Save(std::shared_ptr<Saver> saver, std::uint64_t step) : saver_(std::move(saver)), step_(step) {}

  void add_meta(const char* key, const char* value);
  std::uint64_t add_memory(const capture::MemoryRange& range);
  void freeze();
  void start();
  /// Adds to what is made of the memory; throws once it's started.
  template <class Change>
  void describe(Change&& change) {
    const std::lock_guard lock(mutex_);
    if (started_) refuse("the save has been started");
    change(files_);
  }

  [[nodiscard]] ckpt_state state();
  [[nodiscard]] bool is_over() const {
    const std::lock_guard lock(mutex_);
    return ended();
  }
  [[nodiscard]] bool is_released() const;
  /// The save's failure counts as told. CKPT_TIMED_OUT.
  [[nodiscard]] Failure wait(const Deadline& deadline, bool until_durable);
  void timings(ckpt_timings& timings) const;
  /// No one will ask again: dropped, unless it's started.
  void abandon();

  /// By the saver's thread; says how it went in state and failure.
  void run();
  /// A failure that no one has been told of; it has been then.
  [[nodiscard]] std::optional<Failure> untold_failure();

 private:
  class Log;
  void begin();
  void hand_over_if_ready();
  void finish(ckpt_state state, Failure failure);
  void look_for_commit();
  /// What no one will read is let go, of a save that has failed or was skipped.
  void let_go();
  /// With the mutex held.
  [[nodiscard]] bool ended() const;

  const std::shared_ptr<Saver> saver_;
  const std::uint64_t step_;
  const OwnProcess process_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  ckpt_state state_ = CKPT_STATE_NEW;
  bool frozen_ = false;  ///< asked for
  bool begun_ = false;   ///< the memory can be read
  bool moment_over_ = false;
  bool started_ = false;
  bool handed_over_ = false;
  bool told_ = false;
  CapturedFiles files_;
  std::map<std::string, std::string> meta_;
  std::vector<capture::MemoryRange> ranges_;
  std::shared_ptr<capture::FrozenMemory> memory_;
  Clock::time_point moment_;
  Failure failure_;
  SaveReport report_;
  std::string warning_;
  double durable_seconds_ = 0;
};

}  // namespace ckpt::capi
