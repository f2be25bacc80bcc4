// SPDX-License-Identifier: Apache-2.0
// A task on the store with an end: it's given up when it shows no sign of life for too long.
#pragma once

#include "run/store_task.hpp"

#include <ckpt/run.hpp>

#include <poll.h>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace ckpt::run {

class GuardedTask {
 public:
  /// `limit`: the longest silence.
  GuardedTask(std::string store, std::chrono::duration<double> limit) : store_(std::move(store)), limit_(limit) {}

  void start(const StoreTask::Work& work) { task_ = std::make_unique<StoreTask>(work); }
  [[nodiscard]] bool is_running() const { return task_ != nullptr; }
  void cancel() { task_.reset(); }
  void add_to(std::vector<pollfd>& watched) const;
  [[nodiscard]] bool set_ended(pid_t pid) const;
  [[nodiscard]] std::vector<pid_t> pids() const;

  /// Its result, once it's there. Throws the error that it ended with, or Errc::busy.
  [[nodiscard]] std::optional<nlohmann::json> turn(std::chrono::steady_clock::time_point now, RunObserver& observer);
  /// The next thing it told.
  [[nodiscard]] std::optional<nlohmann::json> take_message() const;

 private:
  std::string store_;
  std::chrono::duration<double> limit_;
  std::unique_ptr<StoreTask> task_;
};

}  // namespace ckpt::run
