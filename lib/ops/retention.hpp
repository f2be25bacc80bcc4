// SPDX-License-Identifier: Apache-2.0
// Which checkpoints stay, as a pure function: what is known of them goes in, a decision for each comes out. It reads no
// clock and no disk, so that its rules can be tested on any history.
#pragma once

#include "core/digest.hpp"
#include "format/base.hpp"

#include <ckpt/prune.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt::ops {

enum class Health {
  unverified,  ///< no record
  good,        ///< a verification found nothing
  damaged,     ///< a verification found damage
  unreadable,  ///< its manifest can't be believed
};

/// What the policy goes by.
struct Candidate {
  std::uint64_t step = 0;
  Digest id;
  bool retired = false;
  std::optional<std::int64_t> created;
  std::map<std::string, std::string> meta;
  std::map<std::string, std::string> marks;
  Health health = Health::unverified;
  bool pinned = false;                        ///< by a user
  bool in_use = false;                        ///< by a process that lives
  bool pending = false;                       ///< a set in the making depends on it
  std::vector<format::BaseCheckpoint> bases;  ///< what it depends on

  /// As others name it that depend on it.
  [[nodiscard]] format::BaseCheckpoint identity() const { return {.id = id, .step = step}; }
};

struct Decision {
  bool kept = false;
  std::vector<std::string_view> rules;        ///< why it's kept; see PruneDecision
  std::vector<std::string> drop;              ///< patterns
  std::vector<format::BaseCheckpoint> avoid;  ///< not empty: to be encoded anew, without depending on any of these
};

/// Throws Errc::invalid_argument for a policy that can't be meant.
void check_policy(const RetentionPolicy& policy);

/// A decision for each candidate, in their order. Candidates may come in any order; their steps are different but for
/// retired ones. Throws Errc::invalid_argument if there are checkpoints and none has the key of a KeepBest.
[[nodiscard]] std::vector<Decision> decide(const RetentionPolicy& policy, const std::vector<Candidate>& candidates);

/// Where something that stays still depends on something that goes, that stays too.
void hold_bases(const std::vector<Candidate>& candidates, std::vector<Decision>& decisions);

/// Those that go, each before what it depends on.
[[nodiscard]] std::vector<std::size_t> removal_order(const std::vector<Candidate>& candidates,
                                                     const std::vector<Decision>& decisions);

/// Those that are to be encoded anew, each after what it depends on: against that as it's then.
[[nodiscard]] std::vector<std::size_t> rebase_order(const std::vector<Candidate>& candidates,
                                                    const std::vector<Decision>& decisions);

/// What the mark "lossy" of a checkpoint says, among other reasons and set off by "; ", once the tensors of a pattern
/// have been dropped.
[[nodiscard]] std::string reason_of_drop(const std::string& pattern);

}  // namespace ckpt::ops
