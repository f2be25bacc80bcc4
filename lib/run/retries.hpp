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

class Retries {
 public:
  explicit Retries(RetryRules rules) : rules_(rules) {}

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
  /// Failures since the last new checkpoint.
  [[nodiscard]] std::uint32_t in_vain() const { return in_vain_; }
  [[nodiscard]] std::uint32_t restarts() const { return restarts_; }

 private:
  RetryRules rules_;
  std::optional<std::uint64_t> furthest_;
  std::uint32_t restarts_ = 0;
  std::uint32_t in_vain_ = 0;
  std::uint32_t at_this_step_ = 0;
  std::uint32_t poisoned_in_a_row_ = 0;
};

}  // namespace ckpt::run
