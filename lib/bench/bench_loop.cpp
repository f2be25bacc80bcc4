// SPDX-License-Identifier: Apache-2.0
#include "bench/bench_loop.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

namespace ckpt::measure {
namespace {

constexpr std::size_t private_floats = 4096;  ///< in the core's own cache

void compute(std::array<float, private_floats>& values, std::uint64_t units) {
  for (std::uint64_t unit = 0; unit < units; ++unit) {
    for (float& value : values) value = value * 0.999F + 0.5F;
  }
  // Whoever compiles it can't know that no one looks.
  asm volatile("" : : "r"(values.data()) : "memory");
}

}  // namespace

ComputeLoop::ComputeLoop(State& state, unsigned threads, double share)
    : state_(state), share_(share), begin_(threads + 1), end_(threads + 1) {
  for (std::size_t part = 0; part < threads; ++part) threads_.emplace_back([this, part] { work(part); });
}

ComputeLoop::~ComputeLoop() {
  over_ = true;
  begin_.arrive_and_wait();
}

void ComputeLoop::work(std::size_t part) {
  std::array<float, private_floats> values{};
  while (true) {
    begin_.arrive_and_wait();
    if (over_) return;
    compute(values, units_);
    state_.update(number_, share_, part, threads_.size());
    end_.arrive_and_wait();
  }
}

void ComputeLoop::step(std::uint64_t number) {
  number_ = number;
  begin_.arrive_and_wait();
  end_.arrive_and_wait();
}

double ComputeLoop::timed_steps(std::uint64_t units) {
  constexpr std::array<std::uint64_t, 3> numbers = {1, 2, 3};
  units_ = units;
  double least = 1e9;
  for (const std::uint64_t number : numbers) {
    const auto start = Clock::now();
    step(number);
    least = std::min(least, seconds_since(start));
  }
  return least;
}

void ComputeLoop::calibrate(double step_seconds) {
  const double update = timed_steps(0);
  constexpr std::uint64_t trial = 20000;
  const double unit = std::max(timed_steps(trial) - update, 1e-6) / trial;
  units_ = static_cast<std::uint64_t>(std::max(0.0, step_seconds - update) / unit);
}

}  // namespace ckpt::measure
