// SPDX-License-Identifier: Apache-2.0
#include "ops/serve_chores.hpp"

#include "os/file_lock.hpp"
#include "os/priority.hpp"
#include "store/store.hpp"

#include <ckpt/error.hpp>

#include <fcntl.h>
#include <algorithm>

namespace ckpt::ops {
namespace {

constexpr auto chore_pause = std::chrono::milliseconds(200);
/// What lasts needn't be said every second.
constexpr std::chrono::duration<double> pause_after_failure = std::chrono::minutes(1);

/// The observer's, and a second reason to stop.
class ChoreMonitor final : public Monitor {
 public:
  ChoreMonitor(ServeObserver& observer, const std::atomic<bool>& stop) : observer_(observer), stop_(stop) {}
  void warning(std::string_view message) override { observer_.warning(message); }
  void note(std::string_view message) override { observer_.note(message); }
  [[nodiscard]] bool stop_requested() const override { return stop_ || observer_.stop_requested(); }

 private:
  ServeObserver& observer_;
  const std::atomic<bool>& stop_;
};

}  // namespace

ChoreRunner::ChoreRunner(const std::vector<Chore>& chores, std::string store, ServeObserver& observer)
    : store_(std::move(store)), observer_(observer) {
  for (const Chore& chore : chores) turns_.push_back({.chore = &chore, .lock = {}});
  if (!turns_.empty()) thread_ = std::thread([this] { work(); });
}

ChoreRunner::~ChoreRunner() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void ChoreRunner::work() {
  os::give_way_to_others();
  while (!stop_) {
    for (Turn& turn : turns_) {
      if (stop_ || !idle_ || Clock::now() < turn.next) continue;
      try {
        if (has_lock(turn)) run(turn);
      } catch (const std::exception& error) {
        observer_.chore_failed(turn.chore->name, error.what());
        turn.next = Clock::now() + std::chrono::seconds(1);
      }
    }
    std::this_thread::sleep_for(chore_pause);
  }
}

bool ChoreRunner::has_lock(Turn& turn) const {
  if (turn.lock.valid()) return true;
  if (!os::exists(store_ + "/" + store::description_file)) return false;
  const std::string path = store::Store::open(store_).pending() + "/chore-" + turn.chore->name + ".lock";
  os::Fd lock = os::open(path, O_RDWR | O_CREAT, 0666);
  if (!os::try_lock(lock, path)) return false;
  turn.lock = std::move(lock);
  return true;
}

void ChoreRunner::run(Turn& turn) {
  ChoreMonitor monitor(observer_, stop_);
  std::chrono::duration<double> pause(turn.chore->pause_seconds);
  try {
    turn.chore->run(monitor);
  } catch (const Error& error) {
    if (error.code() == Errc::interrupted) return;
    observer_.chore_failed(turn.chore->name, error.what());
    pause = std::max(pause, pause_after_failure);
  }
  turn.next = Clock::now() + std::chrono::duration_cast<Clock::duration>(pause);
}

}  // namespace ckpt::ops
