// SPDX-License-Identifier: Apache-2.0
// Checkpoints that lose values, for ever: new containers, a new id, and marks that say so.
#pragma once

#include "ops/reencode.hpp"

#include <ckpt/compress.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace ckpt::ops {

/// Throws Errc::invalid_argument for rules that can't be meant.
void check_rules(const std::vector<LossyRule>& rules);

/// What the rules are about. Throws Errc::unsupported where a tensor can't be changed alone.
struct LossyMatch {
  bool any = false;
  std::vector<std::string> patterns;  ///< those that a tensor has
};
[[nodiscard]] LossyMatch match_rules(const store::Checkpoint& checkpoint, const std::vector<LossyRule>& rules);

struct LossyResult {
  bool changed = false;  ///< false: no tensor matches, or all are like that already; the checkpoint is as it was
  Digest id;
  std::uint64_t stored_after = 0;
  std::vector<TensorLoss> losses;
};

/// `plan` says what the new blocks may be stored against; nothing depends on the checkpoint. On any Error it's as it
/// was. Throws as reencode() does; unsupported where a tensor can't be changed alone.
LossyResult make_lossy(const store::Store& store, const store::Checkpoint& checkpoint,
                       const std::vector<LossyRule>& rules, const ReencodePlan& plan, unsigned jobs, Monitor& monitor);

/// The same without a change, with about the size that would come out.
[[nodiscard]] LossyResult estimate_lossy(const store::Checkpoint& checkpoint, const std::vector<LossyRule>& rules,
                                         const ReencodePlan& plan, unsigned jobs, Monitor& monitor);

}  // namespace ckpt::ops
