// SPDX-License-Identifier: Apache-2.0
// Elements in the order of their groups, and back. Four quarters are worked on in step: a cursor is moved and used
// again at once where neighbours are of one group, and with four of them the processor needn't wait for each.
#pragma once

#include "codec/typed_format.hpp"
#include "core/bytes.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace ckpt::codec {

class Partition {
 public:
  static constexpr std::size_t lanes = 4;

  /// Fills `keys`, a byte for each element, with find_keys(first, count, out); they stay there while this is used.
  template <class FindKeys>
  Partition(const std::vector<GroupPlan>& groups, std::span<std::uint8_t> keys, FindKeys find_keys)
      : keys_(keys), lane_size_((keys.size() + lanes - 1) / lanes), group_of_(group_by_key(groups)) {
    std::array<std::array<std::uint32_t, 256>, lanes> key_counts{};
    for (std::size_t at = 0; at < lane_size_; at += step) {
      for (std::size_t l = 0; l < lanes; ++l) {
        const auto [first, count] = range(l, at);
        find_keys(first, count, keys.data() + first);
      }
      for_each_step(at, at + step, [&](std::size_t l, std::size_t i) { ++key_counts[l][keys_[i]]; });
    }
    counts_.resize(groups.size());
    std::array<std::array<std::uint32_t, max_groups>, lanes> lane_counts{};
    for (std::size_t l = 0; l < lanes; ++l) {
      for (unsigned key = 0; key < 256; ++key) lane_counts[l][group_of_[key]] += key_counts[l][key];
    }
    std::uint32_t at = 0;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      for (std::size_t l = 0; l < lanes; ++l) {
        next_[l][g] = at;
        at += lane_counts[l][g];
        counts_[g] += lane_counts[l][g];
      }
    }
  }

  /// Elements of each group.
  [[nodiscard]] const std::vector<std::uint32_t>& counts() const { return counts_; }

  /// Elements of a lane that are worked on at once.
  static constexpr std::size_t step = 2048;
  [[nodiscard]] std::size_t lane_size() const { return lane_size_; }
  /// The elements [first, first + count) of a lane, counted in all; count is below `step` at the end.
  struct Range {
    std::size_t first = 0;
    std::size_t count = 0;
  };
  [[nodiscard]] Range range(std::size_t lane, std::size_t at) const {
    const std::size_t begin = lane * lane_size_ + at;
    const std::size_t end = std::min({begin + step, (lane + 1) * lane_size_, keys_.size()});
    return {.first = begin, .count = end > begin ? end - begin : 0};
  }

  /// Moves a step of each lane, which begins at `at` in it, to its places in `grouped`.
  template <class T>
  void scatter(std::size_t at, const std::array<std::array<std::byte, step * sizeof(T)>, lanes>& from,
               std::byte* grouped) {
    for_each_step(at, at + step, [&](std::size_t l, std::size_t i) {
      std::byte* const to = grouped + std::size_t{next_[l][group_of_[keys_[i]]]++} * sizeof(T);
      std::memcpy(to, from[l].data() + (i - l * lane_size_ - at) * sizeof(T), sizeof(T));
    });
  }
  /// The inverse.
  template <class T>
  void gather(std::size_t at, const std::byte* grouped,
              std::array<std::array<std::byte, step * sizeof(T)>, lanes>& to) {
    for_each_step(at, at + step, [&](std::size_t l, std::size_t i) {
      const std::byte* const from = grouped + std::size_t{next_[l][group_of_[keys_[i]]]++} * sizeof(T);
      std::memcpy(to[l].data() + (i - l * lane_size_ - at) * sizeof(T), from, sizeof(T));
    });
  }

 private:
  /// work(lane, element) for the elements [begin, end) of each lane, the lanes taking turns.
  template <class Work>
  void for_each_step(std::size_t begin, std::size_t end, Work&& work) const {
    std::array<std::size_t, lanes> left{};
    for (std::size_t l = 0; l < lanes; ++l) {
      const std::size_t lane_end = std::min((l + 1) * lane_size_, keys_.size());
      const std::size_t first = l * lane_size_ + begin;
      left[l] = first < lane_end ? std::min(lane_end - first, end - begin) : 0;
    }
    // The last lane is the shortest.
    const std::size_t together = left[lanes - 1];
    for (std::size_t i = 0; i < together; ++i) {
      work(0, begin + i);
      work(1, lane_size_ + begin + i);
      work(2, 2 * lane_size_ + begin + i);
      work(3, 3 * lane_size_ + begin + i);
    }
    for (std::size_t l = 0; l < lanes; ++l) {
      for (std::size_t i = together; i < left[l]; ++i) work(l, l * lane_size_ + begin + i);
    }
  }

  std::span<const std::uint8_t> keys_;
  std::size_t lane_size_;
  std::array<std::uint8_t, 256> group_of_;
  std::vector<std::uint32_t> counts_;
  std::array<std::array<std::uint32_t, max_groups>, lanes> next_{};
};

}  // namespace ckpt::codec
