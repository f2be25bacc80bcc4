// SPDX-License-Identifier: Apache-2.0
// Looks on while a loop runs: how far its saves have come, and how much memory the process has.
#pragma once

#include "bench/bench_door.hpp"

#include <ckpt/bench.hpp>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace ckpt::measure {

/// Bytes of anonymous memory that this process has now.
[[nodiscard]] std::uint64_t anonymous_memory();

class SaveWatch {
 public:
  /// Looks from now on, every few milliseconds.
  SaveWatch(SaveDoor& door, Clock::time_point start);
  SaveWatch(const SaveWatch&) = delete;
  SaveWatch& operator=(const SaveWatch&) = delete;
  ~SaveWatch();

  /// Begins a save, which is the stall, and goes on looking at it.
  void save(std::uint64_t step);
  /// True once all saves are durable. Throws what failed of them.
  [[nodiscard]] bool is_over();
  /// The saves, and the most memory there was.
  [[nodiscard]] std::vector<BenchSave> saves();
  [[nodiscard]] std::uint64_t peak_memory() const { return peak_; }

 private:
  void look_at_saves();
  void look_at_memory();

  SaveDoor& door_;
  const Clock::time_point start_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<BenchSave> saves_;
  std::exception_ptr failure_;
  std::atomic<std::uint64_t> peak_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
  std::thread memory_thread_;  ///< also looks during a stall
};

}  // namespace ckpt::measure
