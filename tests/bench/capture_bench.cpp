// SPDX-License-Identifier: Apache-2.0
// What freezing memory costs its owner. Prints medians and ratios:
//   protect  the stall of write-protecting, against a memcpy of the same bytes into memory that's in use already
//   rewrite  (freeze + overwriting all of it at once, while a reader drains at 2 GB/s) / (memcpy + overwriting)
//   copy     the stall of copying, against that memcpy
//   many     the stall for 1.3 GB in 12,000 tensors
//   beside   steps that compute in their caches, on all cores but one, while a reader at low priority drains and hashes
//            at 2 GB/s, against steps without it, in turn; only with a free core is it a figure (target 1.05)
//   after    the most anonymous memory beyond the state, if it's overwritten once all is released, against the state
//            (target 0.1)
//   later    the same, if it's overwritten 200 ms after the moment, against what isn't released by then (target 1)
// usage: capture_bench [GIB [ROUNDS]]
#include "bench/bench_watch.hpp"
#include "capture/freezer.hpp"
#include "core/digest.hpp"
#include "os/priority.hpp"

#include <sys/mman.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace ckpt::capture;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t gib = std::uint64_t{1} << 30U;
constexpr std::uint64_t piece = std::uint64_t{4} << 20U;
constexpr double drain_rate = 2e9;

double seconds(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::byte* map(std::uint64_t size, bool huge) {
  void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) std::abort();
  (void)madvise(p, size, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  std::memset(p, 1, size);
  return static_cast<std::byte*>(p);
}

/// A writer of 2 GB/s, which reads and releases. `released` is told how many bytes it is through with.
void drain(FrozenMemory& memory, double rate, const std::function<void(std::uint64_t)>& released = {},
           bool hashes = false) {
  std::vector<std::byte> buffer(piece);
  const auto start = Clock::now();
  std::uint64_t done = 0;
  for (std::size_t range = 0; range < memory.count(); ++range) {
    for (std::uint64_t at = 0; at < memory.size(range); at += piece) {
      const std::uint64_t n = std::min(piece, memory.size(range) - at);
      memory.read(range, at, {buffer.data(), n});
      if (hashes) (void)ckpt::xxh3_128(std::span<const std::byte>(buffer.data(), n));
      memory.release(range, at, n);
      done += n;
      if (released) released(done);
      std::this_thread::sleep_until(start + std::chrono::duration_cast<Clock::duration>(
                                                std::chrono::duration<double>(static_cast<double>(done) / rate)));
    }
  }
}

std::vector<MemoryRange> ranges_of(const std::byte* memory, std::uint64_t size) {
  constexpr std::uint64_t count = 64;  // tensors
  std::vector<MemoryRange> ranges;
  for (std::uint64_t i = 0; i < count; ++i)
    ranges.push_back({.begin = memory + i * (size / count), .size = size / count});
  return ranges;
}

void measure(std::byte* memory, std::byte* other, std::uint64_t size, int rounds, const std::string& name) {
  std::vector<double> copies, rewrites, protects, faulty, frozen_copies;
  if (why_not_protect().empty()) {
    Freezer freezer({.way = Way::protect, .memory = size});
    for (int round = 0; round < rounds; ++round) {
      const double copying = seconds([&] { std::memcpy(other, memory, size); });
      const double rewriting = seconds([&] { std::memset(memory, round, size); });
      copies.push_back(copying);
      rewrites.push_back(copying + rewriting);
      const auto frozen = freezer.prepare(ranges_of(memory, size));
      const auto start = Clock::now();
      frozen->freeze([] {});
      protects.push_back(std::chrono::duration<double>(Clock::now() - start).count());
      std::thread reader([&] { drain(*frozen, drain_rate); });
      std::memset(memory, round + 100, size);
      faulty.push_back(std::chrono::duration<double>(Clock::now() - start).count());
      reader.join();
      if (round == rounds - 1) {
        const FreezeTimings timings = frozen->timings();
        std::printf("%s aside %.2f of %.2f GiB, peak %.2f, faults %.3f s, for room %.3f s %s\n", name.c_str(),
                    static_cast<double>(timings.aside_bytes) / gib, static_cast<double>(timings.protected_bytes) / gib,
                    static_cast<double>(timings.peak_aside_bytes) / gib, timings.fault_seconds, timings.wait_seconds,
                    timings.why_copied.c_str());
      }
    }
    std::printf("%s protect %.1f ms, memcpy %.1f ms: %.4f\n", name.c_str(), median(protects) * 1e3,
                median(copies) * 1e3, median(protects) / median(copies));
    std::printf("%s rewrite %.1f ms, with memcpy %.1f ms: %.2f\n", name.c_str(), median(faulty) * 1e3,
                median(rewrites) * 1e3, median(faulty) / median(rewrites));
  }
  copies.clear();
  Freezer freezer({.way = Way::copy, .memory = size + piece});
  for (int round = 0; round < rounds; ++round) {
    copies.push_back(seconds([&] { std::memcpy(other, memory, size); }));
    const auto frozen = freezer.prepare(ranges_of(memory, size));
    frozen_copies.push_back(seconds([&] { frozen->freeze([] {}); }));
  }
  std::printf("%s copy %.1f ms, memcpy %.1f ms: %.2f\n", name.c_str(), median(frozen_copies) * 1e3,
              median(copies) * 1e3, median(frozen_copies) / median(copies));
}

/// Steps that the caches hold, so that nothing but the processor is shared with the reader.
double computed_steps(std::vector<float>& numbers, int steps) {
  return seconds([&] {
    for (int step = 0; step < steps; ++step) {
      for (float& number : numbers) number = number * 0.999F + 0.001F;
    }
  });
}

/// Seconds a step, of the slowest of the threads, until `over` says so after a few.
double seconds_a_step(unsigned threads, const std::function<bool()>& over) {
  constexpr int together = 50;
  constexpr std::size_t numbers_of_one = std::size_t{64} << 10U;
  std::vector<double> slowest(threads, 0);
  std::vector<std::thread> computing;
  for (unsigned i = 0; i < threads; ++i) {
    computing.emplace_back([&, i] {
      std::vector<float> numbers(numbers_of_one, 1);
      double sum = 0;
      int count = 0;
      do {
        sum += computed_steps(numbers, together);
        count += together;
      } while (!over());
      if (numbers[0] > 2) std::abort();  // the numbers are used, so that they are computed
      slowest[i] = sum / count;
    });
  }
  for (std::thread& thread : computing) thread.join();
  return *std::max_element(slowest.begin(), slowest.end());
}

void measure_beside(const std::byte* memory, std::uint64_t size, int rounds, const std::string& name) {
  Freezer freezer({.way = Way::automatic, .memory = size + piece});
  const unsigned threads = std::max(2U, std::thread::hardware_concurrency()) - 1;
  std::vector<double> ratios;
  for (int round = 0; round < rounds; ++round) {
    // As many steps on either side: half of those without a drain before it, half after it, since machines drift.
    const auto half = std::chrono::duration<double>(static_cast<double>(size) / drain_rate / 2);
    const auto alone = [&] {
      const auto until = Clock::now() + half;
      return seconds_a_step(threads, [&] { return Clock::now() >= until; });
    };
    const double before = alone();
    const auto frozen = freezer.prepare(ranges_of(memory, size));
    frozen->freeze([] {});
    std::thread reader([&] {
      ckpt::os::give_way_to_others();
      drain(*frozen, drain_rate, {}, true);
    });
    const double beside = seconds_a_step(threads, [&] { return frozen->is_released(); });
    reader.join();
    ratios.push_back(beside / ((before + alone()) / 2));
  }
  std::printf("%s beside %.3f, of %u threads that compute (%.3f to %.3f)\n", name.c_str(), median(ratios), threads,
              *std::min_element(ratios.begin(), ratios.end()), *std::max_element(ratios.begin(), ratios.end()));
}

/// The most anonymous memory beyond what there was at first, until it's destroyed.
class MemoryPeak {
 public:
  MemoryPeak() : before_(ckpt::measure::anonymous_memory()), peak_(before_) {
    thread_ = std::thread([this] {
      while (!stopping_) {
        peak_ = std::max(peak_.load(), ckpt::measure::anonymous_memory());
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
  }
  MemoryPeak(const MemoryPeak&) = delete;
  MemoryPeak& operator=(const MemoryPeak&) = delete;
  ~MemoryPeak() {
    stopping_ = true;
    thread_.join();
  }
  [[nodiscard]] std::uint64_t beyond() const { return peak_ - before_; }

 private:
  std::uint64_t before_;
  std::atomic<std::uint64_t> peak_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

/// A negative wait: until all is released.
void measure_memory(std::byte* memory, std::uint64_t size, int rounds, const std::string& name,
                    std::chrono::milliseconds wait) {
  const bool is_after = wait.count() < 0;
  std::vector<double> ratios, beyonds;
  for (int round = 0; round < rounds; ++round) {
    // A fresh one: what an earlier round set aside stays with its freezer.
    Freezer freezer({.way = Way::protect, .memory = size + piece});
    const MemoryPeak peak;
    const auto frozen = freezer.prepare(ranges_of(memory, size));
    frozen->freeze([] {});
    std::atomic<std::uint64_t> released = 0;
    std::thread reader([&] { drain(*frozen, drain_rate, [&](std::uint64_t done) { released = done; }); });
    if (is_after) {
      reader.join();
    } else {
      std::this_thread::sleep_for(wait);
    }
    const std::uint64_t left = size - released;
    std::memset(memory, round, size);
    if (!is_after) reader.join();
    beyonds.push_back(static_cast<double>(peak.beyond()));
    ratios.push_back(static_cast<double>(peak.beyond()) / static_cast<double>(is_after ? size : left));
  }
  std::printf("%s %s %.3f (%.3f to %.3f), %.0f MiB beyond the state's %.0f\n", name.c_str(),
              is_after ? "after" : "later", median(ratios), *std::min_element(ratios.begin(), ratios.end()),
              *std::max_element(ratios.begin(), ratios.end()), median(beyonds) / (1U << 20U),
              static_cast<double>(size) / (1U << 20U));
}

/// 12,000 tensors, half of which are too small to be protected, with gaps between them.
void measure_many(int rounds) {
  constexpr std::uint64_t count = 12000, small = 20 << 10U, large = 200 << 10U, gap = 20000;
  std::byte* memory = map(count * (large + gap), false);
  std::vector<MemoryRange> ranges;
  std::uint64_t at = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    ranges.push_back({.begin = memory + at, .size = i % 2 == 0 ? small : large});
    at += ranges.back().size + gap;
  }
  for (const Way way : {Way::automatic, Way::copy}) {
    Freezer freezer({.way = way, .memory = 3 * gib});
    std::vector<double> freezes;
    for (int round = 0; round < rounds; ++round) {
      const auto frozen = freezer.prepare(ranges);
      freezes.push_back(seconds([&] { frozen->freeze([] {}); }));
    }
    std::printf("many, %s: %.1f ms\n", way == Way::copy ? "copied" : "protected", median(freezes) * 1e3);
  }
  (void)munmap(memory, count * (large + gap));
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t size = (argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 4) * gib;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 5;
  std::byte* other = map(size, true);
  for (const bool huge : {true, false}) {
    std::byte* memory = map(size, huge);
    const std::string name = huge ? "huge pages" : "4 KiB pages";
    measure(memory, other, size, rounds, name);
    if (why_not_protect().empty()) {
      measure_memory(memory, size, rounds, name, std::chrono::milliseconds(-1));
      measure_memory(memory, size, rounds, name, std::chrono::milliseconds(200));
    }
    measure_beside(memory, size, rounds, name);
    (void)munmap(memory, size);
  }
  measure_many(rounds);
}
