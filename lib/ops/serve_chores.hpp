// SPDX-License-Identifier: Apache-2.0
// A server's upkeep, in a thread of its own that gives way to all other work.
#pragma once

#include "os/fd.hpp"

#include <ckpt/serve.hpp>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace ckpt::ops {

/// Runs chores whose locks this server has, as long as it lives and says that it's idle. The observer must be
/// thread-safe.
class ChoreRunner {
 public:
  ChoreRunner(const std::vector<Chore>& chores, std::string store, ServeObserver& observer);
  ChoreRunner(const ChoreRunner&) = delete;
  ChoreRunner& operator=(const ChoreRunner&) = delete;
  /// Ends the chore in hand at its next block.
  ~ChoreRunner();

  /// No chore begins while there's something to save.
  void set_idle(bool idle) { idle_ = idle; }

 private:
  using Clock = std::chrono::steady_clock;

  struct Turn {
    const Chore* chore;
    os::Fd lock;  ///< held from the first time that it's got
    Clock::time_point next = Clock::now();
  };

  void work();
  [[nodiscard]] bool has_lock(Turn& turn) const;
  void run(Turn& turn);

  std::string store_;
  ServeObserver& observer_;
  std::vector<Turn> turns_;
  std::atomic<bool> idle_{false};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace ckpt::ops
