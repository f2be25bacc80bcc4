// SPDX-License-Identifier: Apache-2.0
#include "bench/bench_watch.hpp"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <limits>
#include <string>

namespace ckpt::measure {
namespace {

constexpr auto pause = std::chrono::milliseconds(2);

}  // namespace

std::uint64_t anonymous_memory() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    std::uint64_t kib = 0;
    if (word == "RssAnon:" && status >> kib) return kib * 1024;
    status.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

SaveWatch::SaveWatch(SaveDoor& door, Clock::time_point start) : door_(door), start_(start), peak_(anonymous_memory()) {
  thread_ = std::thread([this] { look_at_saves(); });
  memory_thread_ = std::thread([this] { look_at_memory(); });
}

SaveWatch::~SaveWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  memory_thread_.join();
  thread_.join();
}

void SaveWatch::save(std::uint64_t step) {
  // Held all the time: a look beside it could find a save that isn't made yet.
  const std::lock_guard lock(mutex_);
  BenchSave save{.step = step, .begin = seconds_since(start_)};
  door_.begin(save, start_);
  save.resumed = seconds_since(start_);
  saves_.push_back(save);
}

bool SaveWatch::is_over() {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  return std::all_of(saves_.begin(), saves_.end(), [](const BenchSave& save) { return save.durable > 0; });
}

std::vector<BenchSave> SaveWatch::saves() {
  const std::lock_guard lock(mutex_);
  return saves_;
}

void SaveWatch::look_at_memory() {
  while (!stopping_) {
    peak_ = std::max(peak_.load(), anonymous_memory());
    std::this_thread::sleep_for(pause);
  }
}

void SaveWatch::look_at_saves() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    try {
      for (BenchSave& save : saves_) {
        if (!failure_) door_.look(save, start_);
      }
    } catch (...) {
      failure_ = std::current_exception();
    }
    changed_.wait_for(lock, pause);
  }
}

}  // namespace ckpt::measure
