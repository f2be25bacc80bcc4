// SPDX-License-Identifier: Apache-2.0
// Puts states into a queue in Redis: reserve a place, send what's missing, announce; from the start again, with what is
// there already, whenever the connection or Redis itself went away in between.
#pragma once

#include "doors/door.hpp"
#include "doors/redis_address.hpp"
#include "doors/redis_queue.hpp"

#include <chrono>
#include <cstdint>
#include <string>

namespace ckpt::doors {

struct RedisOutletSettings {
  std::uint64_t piece_size = 8U << 20U;
  /// How long a state that isn't announced yet outlives its producer.
  std::chrono::milliseconds lease{60000};
};

class RedisOutlet final : public Outlet {
 public:
  RedisOutlet(RedisAddress address, std::string password, RedisOutletSettings settings = {});

  /// Each wait, for room or for an answer, takes StageOptions::timeout_seconds at most; 0 is 60. With `until_durable`
  /// the receipt's state is what became of it, failed or skipped with the reason; staged, with a reason, if
  /// nothing was heard in that time. Also throws invalid_argument: WhenFull::skip, a state that is too large.
  [[nodiscard]] Receipt hand_over(const Parcel& parcel, Monitor& monitor) override;

 private:
  RedisAddress address_;
  std::string password_;
  RedisOutletSettings settings_;
};

}  // namespace ckpt::doors
