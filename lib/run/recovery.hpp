// SPDX-License-Identifier: Apache-2.0
// From a store to what a job resumes from: the newest checkpoint that is good is found, a new attempt opens the store,
// and what is newer is retired.
#pragma once

#include <ckpt/monitor.hpp>
#include <ckpt/sync.hpp>
#include <ckpt/verify.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ckpt::run {

struct RecoveryRequest {
  std::string store;  ///< made if it isn't there
  VerifyLevel level = VerifyLevel::quick;
  std::vector<std::string> from;  ///< replicas that may hold what is damaged or missing here
  PeerOptions peer;
  std::optional<std::uint64_t> poisoned;  ///< this step is marked first
  std::string why_poisoned;
  /// The new attempt; nothing: the highest that is recorded plus one. Where a higher one has opened the store, this is
  /// the wish of one who has been replaced meanwhile, and refused.
  std::optional<std::uint64_t> attempt;
  unsigned jobs = 0;
};

struct Recovery {
  std::uint64_t attempt = 1;
  std::optional<std::uint64_t> step;  ///< nothing: there's no checkpoint, and never was
  struct PassedOver {
    std::uint64_t step = 0;
    std::string reason;
  };
  std::vector<PassedOver> passed_over;  ///< newer ones, newest first
  std::vector<std::string> mended;      ///< what came from replicas, in words
};

/// Errors: not_found (there are checkpoints, but none is good: nothing is begun from zero by mistake); exists (a higher
/// attempt opened the store meanwhile); io, no_space and others of the store.
[[nodiscard]] Recovery recover(const RecoveryRequest& request, Monitor& monitor);

/// What a store holds, as far as it matters here.
struct StoreNews {
  std::optional<std::uint64_t> newest;  ///< committed step that isn't marked
  std::optional<double> save_seconds;   ///< what that one took
  std::uint64_t stored_bytes = 0;       ///< of that one
  bool has_older = false;               ///< there's another such step
  std::uint64_t free_bytes = 0;         ///< where the store is
  std::optional<std::uint64_t> highest_attempt;
};
/// Cheap enough for each second. Nothing in it where there's no store.
[[nodiscard]] StoreNews look(const std::string& store);

/// Makes what is staged durable, as far as that goes. Says what stays staged, and why.
[[nodiscard]] std::vector<std::string> drain(const std::string& store, unsigned jobs, Monitor& monitor);

}  // namespace ckpt::run
