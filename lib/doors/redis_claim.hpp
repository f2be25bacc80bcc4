// SPDX-License-Identifier: Apache-2.0
// One shard of a queue in the hands of this server.
#pragma once

#include "doors/announcement.hpp"
#include "doors/claim_keeper.hpp"
#include "doors/door.hpp"
#include "doors/fetched_tree.hpp"
#include "doors/outcome.hpp"
#include "doors/patience.hpp"
#include "doors/redis_inlet.hpp"
#include "doors/release_pauses.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace ckpt::doors {

/// What the claims of one server share.
struct RedisSession {
  RedisSession(RedisAddress where, const std::string& given_password, std::string scratch_directory,
               const RedisInletSettings& all_settings);

  RedisAddress address;
  std::string password;
  std::string consumer;
  std::string scratch;
  RedisInletSettings settings;
  mutable ReleasePauses pauses;

  [[nodiscard]] RedisConnection connect(RedisConnection::Stop stop = {}, RedisLimits limits = {}) const {
    return {address, password, limits, std::move(stop)};
  }
};

class RedisClaim final : public Claim {
 public:
  RedisClaim(std::shared_ptr<const RedisSession> session, QueuedShard shard, Announcement announcement);
  ~RedisClaim() override;
  RedisClaim(const RedisClaim&) = delete;
  RedisClaim& operator=(const RedisClaim&) = delete;

  [[nodiscard]] const Ticket& ticket() const override { return announcement_.ticket; }
  [[nodiscard]] std::string fetch(Monitor& monitor) override;
  [[nodiscard]] std::optional<double> stall_seconds() const override { return announcement_.stall_seconds; }
  void done(const SaveReport& report) override;
  [[nodiscard]] bool fail(const std::string& reason) override;
  void release(const std::string& reason) override;

 private:
  void fetch_into(const std::string& tree, Monitor& monitor);
  /// Tries again what fails for a reason that passes.
  void insist(const std::function<void(RedisQueue&)>& act);
  void let_go();
  [[nodiscard]] std::string outcome_text(const Outcome& outcome) const;

  std::shared_ptr<const RedisSession> session_;
  QueuedShard shard_;
  Announcement announcement_;
  std::optional<FetchedTree> tree_;
  std::optional<ClaimKeeper> keeper_;
  bool settled_ = false;
};

}  // namespace ckpt::doors
