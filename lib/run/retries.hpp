// SPDX-License-Identifier: Apache-2.0
// What is done about a failure. A job that comes further each time may fail as often as it likes; one that dies again
// and again at the same checkpoint gets the one before it; and one that still comes no further is given up, since what
// ails it isn't a checkpoint.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace ckpt::run {

struct RetryRules {
  std::uint32_t per_step = 3;             ///< failures from one checkpoint without a newer one, before it's poisoned
  std::uint32_t poisoned = 2;             ///< checkpoints in a row that may be
  std::optional<std::uint32_t> restarts;  ///< in all
  std::chrono::duration<double> backoff{
      1};  ///< before the second try from one checkpoint; then twice as long each time
};

/// What has been counted: whoever decides next goes on from it.
struct RetryCounts {
  std::optional<std::uint64_t> furthest;  ///< the newest checkpoint there ever was
  std::uint32_t restarts = 0;
  std::uint32_t in_vain = 0;  ///< failures since the last new checkpoint
  std::uint32_t at_this_step = 0;
  std::uint32_t poisoned_in_a_row = 0;
};

class Retries {
 public:
  explicit Retries(RetryRules rules, RetryCounts counts = {}) : rules_(rules), counts_(counts) {}

  enum class Verdict {
    again,        ///< from the newest good checkpoint
    poisoned,     ///< what it resumed from is to be marked, and the one before is taken
    no_progress,  ///< give up: it died too often without a new checkpoint
    too_often,    ///< give up: RetryRules::restarts
  };
  /// An attempt that resumed from `resumed` (nothing: from zero) has failed. `newest` is the newest checkpoint now.
  /// Only one that is newer than any before counts as progress: not one that was there, was given up, and is made
  /// again.
  [[nodiscard]] Verdict count(std::optional<std::uint64_t> resumed, std::optional<std::uint64_t> newest);

  /// How long to wait before the next attempt.
  [[nodiscard]] std::chrono::duration<double> pause() const;
  [[nodiscard]] const RetryCounts& counts() const { return counts_; }
  [[nodiscard]] std::uint32_t restarts() const { return counts_.restarts; }

 private:
  RetryRules rules_;
  RetryCounts counts_;
};

}  // namespace ckpt::run
