// SPDX-License-Identifier: Apache-2.0
// Which group an element belongs to: that of its base's key, the eight bits below the sign.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ckpt::codec {

inline constexpr std::size_t max_groups = 32;

/// A group's keys are those up to its last one that no group before has.
class KeyGroups {
 public:
  /// `last_keys` rise, up to 255; at most max_groups.
  explicit KeyGroups(std::span<const std::uint8_t> last_keys) : count_(last_keys.size()) {
    std::size_t group = 0;
    for (unsigned key = 0; key < 256; ++key) {
      while (key > last_keys[group]) ++group;
      group_of_[key] = static_cast<std::uint8_t>(group);
    }
    unsigned first = 0;
    for (std::size_t g = 0; g < count_; ++g) {
      first_key_[g] = static_cast<std::uint8_t>(first);
      last_key_[g] = last_keys[g];
      first = last_keys[g] + 1U;
    }
  }

  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] std::uint8_t group_of(std::uint8_t key) const { return group_of_[key]; }
  [[nodiscard]] std::uint8_t first_key(std::size_t group) const { return first_key_[group]; }
  [[nodiscard]] std::uint8_t last_key(std::size_t group) const { return last_key_[group]; }

 private:
  std::size_t count_;
  std::array<std::uint8_t, max_groups> first_key_{};
  std::array<std::uint8_t, max_groups> last_key_{};
  std::array<std::uint8_t, 256> group_of_{};
};

}  // namespace ckpt::codec
