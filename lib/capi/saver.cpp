// SPDX-License-Identifier: Apache-2.0
#include "capi/saver.hpp"

#include "capi/save.hpp"
#include "ops/save_input.hpp"
#include "os/priority.hpp"
#include "store/attempts.hpp"
#include "store/store.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <utility>

namespace ckpt::capi {

Saver::Saver(SaverOptions options) : options_(std::move(options)), freezer_(options_.freezer) {
  ops::check_shard_options(options_.save);
  (void)store::Store::open_for_writing(options_.save.store, options_.save.create);
  thread_ = std::thread([this] { work(); });
}

void Saver::watch(std::shared_ptr<Save> save) {
  const std::lock_guard lock(mutex_);
  if (closed_) throw Error(Errc::invalid_argument, "the saver has been closed");
  if (std::find(watched_.begin(), watched_.end(), save) == watched_.end()) watched_.push_back(std::move(save));
}

void Saver::enqueue(std::shared_ptr<Save> save) {
  const std::lock_guard lock(mutex_);
  if (closed_) throw Error(Errc::invalid_argument, "the saver has been closed");
  queue_.push_back(std::move(save));
  changed_.notify_all();
}

void Saver::forget(const Save& save) {
  const std::lock_guard lock(mutex_);
  std::erase_if(watched_, [&](const auto& other) { return other.get() == &save; });
}

std::size_t Saver::pending() const {
  const auto all = saves();
  return static_cast<std::size_t>(
      std::count_if(all.begin(), all.end(), [](const auto& save) { return !save->is_over(); }));
}

std::vector<std::shared_ptr<Save>> Saver::saves() const {
  const std::lock_guard lock(mutex_);
  return watched_;
}

void Saver::has_progress() {
  if (!options_.link) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_alive_) return;
  constexpr double longest = 1e6;
  next_alive_ = now + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                          std::chrono::duration<double>(std::min(options_.alive_seconds, longest)));
  options_.link->alive();
}

void Saver::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Saver::work() {
  os::give_way_to_others();
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closed_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::shared_ptr<Save> save = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    save->run();
    lock.lock();
  }
}

}  // namespace ckpt::capi
