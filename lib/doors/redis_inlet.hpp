// SPDX-License-Identifier: Apache-2.0
// Takes states out of a queue in Redis: one server has a shard at a time, tells the others that it lives by renewing
// its claim, and removes the shard once it's in the store.
#pragma once

#include "doors/door.hpp"
#include "doors/redis_address.hpp"
#include "doors/redis_queue.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace ckpt::doors {

struct RedisInletSettings {
  /// A server that hasn't renewed its claim for so long is taken for dead.
  std::chrono::milliseconds dead_after{5000};
  std::chrono::milliseconds renew_every{1000};
  /// How long to try to reach Redis while a shard is in hand.
  std::chrono::milliseconds patience{20000};
  /// How long a waiting producer finds what became of its shard.
  std::chrono::milliseconds outcome_kept{600000};
  /// What so many servers in a row died of is given to none any more.
  std::uint64_t most_deaths = 16;
};

struct RedisSession;

class RedisInlet final : public Inlet {
 public:
  /// `scratch` is a directory that exists, on the store's disk, where states are put together. What servers that died
  /// left in it is removed.
  RedisInlet(RedisAddress address, const std::string& password, std::string scratch, RedisInletSettings settings = {});
  ~RedisInlet() override;
  RedisInlet(const RedisInlet&) = delete;
  RedisInlet& operator=(const RedisInlet&) = delete;

  [[nodiscard]] std::unique_ptr<Claim> claim(Monitor& monitor) override;
  [[nodiscard]] Backlog backlog() override;
  [[nodiscard]] std::string name() const override;

 private:
  using Clock = std::chrono::steady_clock;

  /// Doesn't try again at once while Redis is out of reach: callers have other doors to look after.
  template <class Act>
  auto reach(const Act& act);

  std::shared_ptr<const RedisSession> session_;
  RedisConnection connection_;
  RedisQueue queue_;
  std::string trouble_;  ///< of the last try
  Clock::time_point next_try_ = Clock::now();
};

}  // namespace ckpt::doors
