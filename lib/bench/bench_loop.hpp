// SPDX-License-Identifier: Apache-2.0
// A loop that computes, as a trainer does: threads that do a fixed amount of floating point work each step, and then
// change the state in place.
#pragma once

#include "bench/bench_state.hpp"

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace ckpt::measure {

using Clock = std::chrono::steady_clock;
[[nodiscard]] inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// step() is called from one thread.
class ComputeLoop {
 public:
  ComputeLoop(State& state, unsigned threads, double share);
  ComputeLoop(const ComputeLoop&) = delete;
  ComputeLoop& operator=(const ComputeLoop&) = delete;
  ~ComputeLoop();

  /// Sets the amount of work so that a step takes about so long.
  void calibrate(double step_seconds);
  void step(std::uint64_t number);

 private:
  void work(std::size_t part);
  [[nodiscard]] double timed_steps(std::uint64_t units);

  State& state_;
  const double share_;
  std::uint64_t units_ = 0;  ///< these and the next two change between two steps only
  std::uint64_t number_ = 0;
  bool over_ = false;
  std::barrier<> begin_;
  std::barrier<> end_;
  std::vector<std::jthread> threads_;
};

}  // namespace ckpt::measure
