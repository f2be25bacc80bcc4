// SPDX-License-Identifier: Apache-2.0
// Removes checkpoints by a policy, and keeps the ones that matter.
//
// What a policy says is decided by a pure function of what the store holds: no clock, no path and no order of calls
// has a part in it. Writers are never blocked: prune and a save may run at the same time.
#pragma once

#include <ckpt/export.hpp>
#include <ckpt/monitor.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ckpt {

/// The checkpoints whose metadata `key` is best. NaN and what is no number are worse than any number, no such metadata
/// is worst; of two that are the same the newer one is better.
struct KeepBest {
  std::uint64_t count = 1;
  std::string key;
  bool highest = false;  ///< the highest value is best; else the lowest
};

/// Tensors that only the last checkpoints keep. They become zeros, and the checkpoint is marked lossy.
struct DropAfter {
  std::uint64_t last = 1;
  std::string pattern;  ///< of tensors' names, as fnmatch(3) has it
};

/// A checkpoint stays if any rule keeps it. Checkpoints that are marked suspect or poisoned, or recorded as damaged,
/// don't count: they never take the place of a sound one. Whatever the rules say, these stay: the newest good one (of
/// lossy ones alone, the newest of these); pinned ones; what a process uses or a set in the making depends on; and all
/// of them, if none is sound.
struct RetentionPolicy {
  std::optional<std::uint64_t> last;     ///< the newest so many
  std::optional<std::uint64_t> every;    ///< steps that are multiples of this
  std::optional<double> within_seconds;  ///< not older than this, counted from the newest one
  std::optional<std::uint64_t> hourly;   ///< the newest one of each of the last so many hours that have one, in UTC
  std::optional<std::uint64_t> daily;
  std::optional<std::uint64_t> weekly;  ///< weeks begin on Monday
  std::vector<KeepBest> best;
  std::vector<std::uint64_t> keep;    ///< these steps too; no rule by itself
  std::vector<std::uint64_t> remove;  ///< these steps go whatever the rules above say; alone, nothing else goes
  std::vector<DropAfter> drop_after;
  bool verified = false;  ///< nothing goes while a newer one that stays has no record of a verification

  /// True if it says what stays: only then does anything go that isn't named.
  [[nodiscard]] CKPT_API bool has_keep_rule() const;
};

struct PruneOptions {
  std::string store;
  RetentionPolicy policy;
  std::vector<std::uint64_t> pin;    ///< these steps stay until they're unpinned; before the policy is applied
  std::vector<std::uint64_t> unpin;  ///< also before it
  bool dry_run = false;              ///< decide, change nothing
  unsigned jobs = 0;                 ///< threads for what must be encoded anew
};

struct PruneDecision {
  std::uint64_t step = 0;
  std::string id;  ///< empty if the manifest can't be read
  bool retired = false;
  bool kept = true;
  /// Why it stays: "last", "every", "within", "hourly", "daily", "weekly", "best", "keep", "newest_good", "pinned",
  /// "in_use", "pending" (a set depends on it), "base" (a checkpoint depends on it that couldn't be encoded anew),
  /// "unverified", "unreadable", "no_good" (no sound one is there), "unasked" (no rule to keep anything is given).
  std::vector<std::string> rules;
  std::vector<std::string> dropped;  ///< patterns whose tensors become zeros now
  bool rebased = false;              ///< is encoded anew, since what it depends on goes
  std::uint64_t stored_bytes = 0;
  std::optional<std::int64_t> created;  ///< seconds since the epoch
};

struct PruneFailure {
  std::uint64_t step = 0;
  std::string message;
  bool temporary = false;  ///< try again later
};

struct PruneReport {
  std::vector<PruneDecision> decisions;  ///< by step; retired ones after the others
  std::vector<PruneFailure> failures;    ///< what was asked for and couldn't be done; the rest is done
  std::uint64_t removed = 0;             ///< checkpoints; with dry_run: that would go
  std::uint64_t removed_bytes = 0;       ///< stored bytes of these
  std::uint64_t sets = 0;                ///< sets and staged saves that can never become a checkpoint, and went too
  double seconds = 0;
};

/// Applies pins, then the policy. A kill at any moment leaves every other checkpoint as it was, and the next prune or
/// save finishes the clean-up.
///
/// Errors: invalid_argument (nothing to do, a wrong policy, a step both kept and removed, a `best` key that no
/// checkpoint has), not_found (no such store, no such step to pin or unpin), busy (another one replaces, repairs,
/// encodes anew or prunes), io. Thread-safe.
[[nodiscard]] CKPT_API PruneReport prune(const PruneOptions& options, Monitor& monitor);

}  // namespace ckpt
