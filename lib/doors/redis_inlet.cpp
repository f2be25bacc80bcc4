// SPDX-License-Identifier: Apache-2.0
#include "doors/redis_inlet.hpp"

#include "doors/redis_claim.hpp"

#include <utility>

namespace ckpt::doors {
namespace {

/// So many malformed entries are passed over before the caller is asked again.
constexpr int most_refused = 100;
constexpr std::chrono::milliseconds pause_after_trouble{500};
/// Other doors wait for it.
constexpr RedisLimits limits_of_looking{.connect = std::chrono::seconds(2), .answer = std::chrono::seconds(5)};

Announcement read_announcement(RedisConnection& connection, const RedisQueue& queue, const QueuedShard& shard) {
  const std::string name = "announcement of " + shard.shard;
  if (shard.announcement_size == 0 || shard.announcement_size > max_announcement_size)
    throw Error(Errc::damaged, "'" + name + "' is missing or has an impossible size");
  Bytes bytes(shard.announcement_size);
  const auto size = connection.get(queue.announcement_key(shard.shard), bytes);
  if (size != bytes.size()) throw Error(Errc::damaged, "'" + name + "' has changed");
  return decode_announcement(bytes, name);
}

}  // namespace

RedisInlet::RedisInlet(RedisAddress address, const std::string& password, std::string scratch,
                       RedisInletSettings settings)
    : session_(std::make_shared<const RedisSession>(std::move(address), password, std::move(scratch), settings)),
      connection_(session_->connect({}, limits_of_looking)),
      queue_(connection_, session_->address.key) {
  remove_dead_fetched_trees(session_->scratch);
}

RedisInlet::~RedisInlet() {
  try {
    if (connection_.is_open()) queue_.leave(session_->consumer);
  } catch (const Error&) {
    // A name in a list, which goes with the queue's last entry.
  }
}

template <class Act>
auto RedisInlet::reach(const Act& act) {
  if (Clock::now() < next_try_) throw RedisTrouble(Errc::busy, trouble_);
  const bool was_open = connection_.is_open();
  const auto attempt = [&] {
    try {
      return act();
    } catch (const RedisTrouble& trouble) {
      trouble_ = trouble.what();
      next_try_ = Clock::now() + pause_after_trouble;
      throw;
    }
  };
  try {
    return attempt();
  } catch (const RedisTrouble&) {
    // One that was idle for long may be one that the other side has closed.
    if (!was_open || connection_.is_open()) throw;
  }
  next_try_ = Clock::now();
  return attempt();
}

std::unique_ptr<Claim> RedisInlet::claim(Monitor& monitor) {
  for (int i = 0; i < most_refused; ++i) {
    const Delivery delivery = reach([&] { return queue_.claim(session_->consumer, session_->settings.dead_after); });
    if (!delivery.refused.empty()) {
      monitor.warning("'" + name() + "': " + delivery.refused);
      continue;
    }
    if (!delivery.shard) return nullptr;
    const QueuedShard& shard = *delivery.shard;
    const auto bury = [&](const std::string& reason) {
      queue_.bury(shard, reason);
      monitor.warning("'" + name() + "', shard " + shard.shard + ": " + reason);
    };
    if (shard.deliveries > session_->settings.most_deaths) {
      bury("the last " + std::to_string(session_->settings.most_deaths) + " servers died of it");
      continue;
    }
    try {
      return std::make_unique<RedisClaim>(session_, shard, read_announcement(connection_, queue_, shard));
    } catch (const RedisTrouble&) {
      throw;
    } catch (const Error& error) {
      if (error.code() != Errc::damaged && error.code() != Errc::unsupported) throw;
      bury(error.what());
    }
  }
  return nullptr;
}

Backlog RedisInlet::backlog() {
  const QueueDepth depth = reach([&] { return queue_.depth(); });
  return {.saves = depth.saves,
          .bytes = depth.bytes,
          .oldest_seconds = depth.oldest_seconds,
          .dead_letters = depth.dead_letters};
}

std::string RedisInlet::name() const { return session_->address.text(); }

}  // namespace ckpt::doors
