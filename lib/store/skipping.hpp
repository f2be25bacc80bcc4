// SPDX-License-Identifier: Apache-2.0
// Whether a set is saved or skipped is said once, by whoever is first, and holds for all its ranks: so no set is left
// that can't complete because some of them skipped it. With one rank there's no one to agree with: its last word holds.
//
//   .pending/0000001010.4.2.decision -> save | skip:REASON     a symlink, which is made with its content in one step
#pragma once

#include "store/store.hpp"

#include <optional>
#include <string>

namespace ckpt::store {

/// The reason, if the set is skipped.
[[nodiscard]] std::optional<std::string> why_skipped(const Store& store, const SetKey& set);

/// Says that the set is saved. The reason, if another rank has said before that it's skipped.
[[nodiscard]] std::optional<std::string> decide_to_save(const Store& store, const SetKey& set);

/// Says that the set is skipped. False if another rank has said before that it's saved, or has stored its shard.
[[nodiscard]] bool decide_to_skip(const Store& store, const SetKey& set, const std::string& reason);

struct SkippedSet {
  SetKey key;
  std::string reason;
};
[[nodiscard]] std::vector<SkippedSet> skipped_sets(const Store& store);

/// The set is committed: what was decided has been done.
void forget_decision(const Store& store, const SetKey& set);

/// Removes decisions of sets that are committed, of attempts that are over, and those that are a week old.
void remove_old_decisions(const Store& store);

}  // namespace ckpt::store
