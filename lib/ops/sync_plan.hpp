// SPDX-License-Identifier: Apache-2.0
// What a destination lacks: a pure function of what both sides hold.
#pragma once

#include "transport/replica.hpp"

#include <ckpt/address.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ckpt::ops {

struct SyncRequest {
  std::vector<transport::ReplicaCheckpoint> chosen;  ///< of the source's, those that are to be there
  bool whole = false;                                ///< they're all that the source has
  bool replace = false;
  bool remove = false;
  bool gather = false;
};

struct SyncPlan {
  std::vector<format::BaseCheckpoint> retire;         ///< committed there, retired here
  std::vector<transport::ReplicaCheckpoint> send;     ///< each after what it depends on
  std::vector<format::BaseCheckpoint> only_as_bases;  ///< of `send`, those that nobody asked for
  std::vector<transport::ReplicaShard> shards;        ///< of sets
  std::vector<std::uint64_t> remove;                  ///< steps
  std::vector<std::string> conflicts;                 ///< why something can't be sent
};

/// `source` holds all that may be sent; a base that isn't chosen is sent too if it isn't there.
[[nodiscard]] SyncPlan plan_sync(const SyncRequest& request, const transport::Inventory& source,
                                 const transport::Inventory& destination, const std::string& destination_name);

/// The newest checkpoint that both hold, and the destination without a base: chains on it are short there too.
[[nodiscard]] std::optional<format::BaseCheckpoint> newest_whole(const transport::Inventory& source,
                                                                 const transport::Inventory& destination);

/// The checkpoints that a selector names; all of them without one. Throws not_found.
[[nodiscard]] std::vector<transport::ReplicaCheckpoint> choose_checkpoints(const transport::Inventory& source,
                                                                           const Selector& which,
                                                                           const std::string& name);

}  // namespace ckpt::ops
