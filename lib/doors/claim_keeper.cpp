// SPDX-License-Identifier: Apache-2.0
#include "doors/claim_keeper.hpp"

#include <utility>

namespace ckpt::doors {

ClaimKeeper::ClaimKeeper(const Connect& connect, const std::string& queue, QueuedShard shard, std::string consumer,
                         std::chrono::milliseconds every)
    : shard_(std::move(shard)),
      consumer_(std::move(consumer)),
      every_(every),
      connection_(connect([this] { return stopping_.load(); })),
      queue_(connection_, queue),
      thread_([this] { work(); }) {}

ClaimKeeper::~ClaimKeeper() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ClaimKeeper::work() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, every_, [this] { return stopping_.load(); })) return;
    }
    try {
      if (!queue_.keep(shard_, consumer_)) {
        lost_ = true;
        return;
      }
    } catch (const Error&) {
      // Tried again at the next turn. If that never succeeds another server takes the shard over, which harms nothing:
      // whoever has it in the store first settles it.
      connection_.close();
    }
  }
}

}  // namespace ckpt::doors
