// SPDX-License-Identifier: Apache-2.0
// The places for ranks on a node, each with its share of the devices. One whose ranks keep failing is left out of the
// next attempts, until its health check passes again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ckpt::run {

struct SlotRules {
  std::uint32_t least = 1;        ///< ranks that the job needs
  std::uint32_t most = 1;         ///< slots there are
  std::uint32_t multiple_of = 1;  ///< ranks come in groups of so many
  std::uint32_t retries = 3;      ///< failures in a row, after which a slot is left out

  [[nodiscard]] bool is_elastic() const { return least < most; }
};

class Slots {
 public:
  explicit Slots(SlotRules rules);

  /// A rank on this slot was the first to fail. True if the slot is left out from now on: only where enough others are
  /// left.
  bool count_failure(std::uint32_t slot);
  /// The job has come further: what failed before is forgiven.
  void forgive();
  void leave_out(std::uint32_t slot);
  void take_back(std::uint32_t slot);

  [[nodiscard]] std::vector<std::uint32_t> left_out() const;
  /// Those to start ranks on, in order: a multiple of the group, or fewer than `least` if there are no more.
  [[nodiscard]] std::vector<std::uint32_t> usable() const;
  [[nodiscard]] const SlotRules& rules() const { return rules_; }

 private:
  [[nodiscard]] std::uint32_t in_groups(std::uint32_t count) const { return count - count % rules_.multiple_of; }

  struct Slot {
    std::uint32_t failures = 0;
    bool left_out = false;
  };
  SlotRules rules_;
  std::vector<Slot> slots_;
};

/// What a *_VISIBLE_DEVICES variable says where only `usable` of `slots` slots are used: the devices that it lists,
/// dealt evenly to all slots, of those that are used. `listed` is its value now; nothing: 0, 1, 2 and so on, one a
/// slot. Nothing if they can't be dealt evenly.
[[nodiscard]] std::optional<std::string> visible_devices(const std::optional<std::string>& listed, std::uint32_t slots,
                                                         const std::vector<std::uint32_t>& usable);

}  // namespace ckpt::run
