// SPDX-License-Identifier: Apache-2.0
#include "doors/redis_claim.hpp"

#include "core/pipeline.hpp"
#include "doors/piece_source.hpp"
#include "doors/tree_writer.hpp"
#include "format/damaged.hpp"
#include "os/fd.hpp"
#include "os/small_file.hpp"

#include <utility>

namespace ckpt::doors {
namespace {

constexpr unsigned fetchers = 2;
constexpr std::size_t fetched_ahead = 3;

}  // namespace

RedisSession::RedisSession(RedisAddress where, const std::string& given_password, std::string scratch_directory,
                           const RedisInletSettings& all_settings)
    : address(std::move(where)),
      password(redis_password(address, given_password)),
      consumer(os::unique_name()),
      scratch(std::move(scratch_directory)),
      settings(all_settings),
      pauses(settings.dead_after) {}

RedisClaim::RedisClaim(std::shared_ptr<const RedisSession> session, QueuedShard shard, Announcement announcement)
    : session_(std::move(session)), shard_(std::move(shard)), announcement_(std::move(announcement)) {
  keeper_.emplace([this](RedisConnection::Stop stop) { return session_->connect(std::move(stop)); },
                  session_->address.key, shard_, session_->consumer, session_->settings.renew_every);
}

RedisClaim::~RedisClaim() {
  keeper_.reset();
  if (!settled_) {
    try {
      RedisConnection connection = session_->connect();
      RedisQueue(connection, session_->address.key)
          .give_back(shard_, session_->consumer, session_->settings.dead_after);
    } catch (const Error&) {
      // The others take this server for dead, which comes to the same.
    }
  }
  let_go();
}

void RedisClaim::let_go() {
  keeper_.reset();
  tree_.reset();
}

std::string RedisClaim::fetch(Monitor& monitor) {
  if (os::free_space(session_->scratch) < announcement_.bytes) {
    throw Error(Errc::no_space, "no room for the " + std::to_string(announcement_.bytes) + " bytes of shard " +
                                    shard_.shard + " in '" + session_->scratch + "'");
  }
  tree_.emplace(session_->scratch);
  fetch_into(tree_->path(), monitor);
  return tree_->path();
}

void RedisClaim::fetch_into(const std::string& tree, Monitor& monitor) {
  const auto stop = [&monitor] { return monitor.stop_requested(); };
  const auto wanted = [&] {
    if (stop()) throw Error(Errc::interrupted, "interrupted");
    if (keeper_ && keeper_->is_lost()) throw Error(Errc::busy, "another server has taken shard " + shard_.shard);
  };
  PieceSource source(
      announcement_, shard_, session_->address.key, [&] { return session_->connect(stop); },
      session_->settings.patience, wanted);
  TreeWriter writer(tree, announcement_.entries);
  Hasher total;
  std::uint64_t done = 0;
  run_ordered(
      announcement_.pieces, fetchers, fetched_ahead, [&](std::size_t i) { return source.get(i); },
      [&](std::size_t, const Piece& piece) {
        total.update(piece.digest.bytes);
        writer.append(piece.bytes);
        done += piece.bytes.size();
        monitor.progress({.stage = "fetch", .done = done, .total = announcement_.bytes});
      });
  if (total.digest() != announcement_.digest) {
    throw format::Damaged(DamageKind::altered, 0, 0,
                          "the pieces of shard " + shard_.shard + " are not those that were announced");
  }
  writer.finish();
}

void RedisClaim::insist(const std::function<void(RedisQueue&)>& act) {
  RedisConnection connection = session_->connect();
  RedisQueue queue(connection, session_->address.key);
  Patience patience(session_->settings.patience, {});
  while (true) {
    try {
      return act(queue);
    } catch (const RedisTrouble&) {
      connection.close();
      if (patience.is_over()) throw;
    }
    patience.sleep();
  }
}

std::string RedisClaim::outcome_text(const Outcome& outcome) const {
  return announcement_.wants_outcome ? encode_outcome(outcome) : std::string();
}

void RedisClaim::done(const SaveReport& report) {
  const std::string outcome = outcome_text({.state = report.state, .id = report.id, .reason = report.reason});
  insist([&](RedisQueue& queue) {
    (void)queue.settle(shard_, announcement_.pieces, outcome, session_->settings.outcome_kept);
  });
  settled_ = true;
  session_->pauses.forget(shard_.shard);
  let_go();
}

bool RedisClaim::fail(const std::string& reason) {
  const std::string outcome = outcome_text({.state = SaveState::failed, .id = {}, .reason = reason});
  Failure failure = Failure::not_ours;
  insist([&](RedisQueue& queue) {
    failure = queue.fail(shard_, session_->consumer, reason, outcome, session_->settings.outcome_kept);
  });
  settled_ = true;
  session_->pauses.forget(shard_.shard);
  let_go();
  return failure == Failure::buried;
}

void RedisClaim::release(const std::string& reason) {
  // What this server only leaves is another's at once.
  const auto pause = reason.empty() ? std::chrono::milliseconds(0) : session_->pauses.next(shard_.shard);
  insist(
      [&](RedisQueue& queue) { queue.give_back(shard_, session_->consumer, session_->settings.dead_after - pause); });
  settled_ = true;
  let_go();
}

}  // namespace ckpt::doors
