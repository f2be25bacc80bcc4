// SPDX-License-Identifier: Apache-2.0
// A thread that tells Redis, again and again, that a server still has a shard in hand.
#pragma once

#include "doors/redis_queue.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace ckpt::doors {

class ClaimKeeper {
 public:
  /// With a connection of its own, made by `connect`, which gets what ends its waits.
  using Connect = std::function<RedisConnection(RedisConnection::Stop)>;
  ClaimKeeper(const Connect& connect, const std::string& queue, QueuedShard shard, std::string consumer,
              std::chrono::milliseconds every);
  ~ClaimKeeper();
  ClaimKeeper(const ClaimKeeper&) = delete;
  ClaimKeeper& operator=(const ClaimKeeper&) = delete;

  /// Another server has it, or has settled it.
  [[nodiscard]] bool is_lost() const { return lost_; }

 private:
  void work();

  QueuedShard shard_;
  std::string consumer_;
  std::chrono::milliseconds every_;
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> lost_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  RedisConnection connection_;
  RedisQueue queue_;
  std::thread thread_;
};

}  // namespace ckpt::doors
