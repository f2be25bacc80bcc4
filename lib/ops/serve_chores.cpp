// SPDX-License-Identifier: Apache-2.0
#include "ops/serve_chores.hpp"

#include "os/file_lock.hpp"
#include "os/priority.hpp"
#include "store/store.hpp"

#include <ckpt/error.hpp>

#include <fcntl.h>

namespace ckpt::ops {
namespace {

constexpr auto poll = std::chrono::milliseconds(200);

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
    std::this_thread::sleep_for(poll);
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
  try {
    turn.chore->run(monitor);
  } catch (const Error& error) {
    if (error.code() == Errc::interrupted) return;
    observer_.chore_failed(turn.chore->name, error.what());
  }
  turn.next = Clock::now() +
              std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(turn.chore->pause_seconds));
}

}  // namespace ckpt::ops
