// SPDX-License-Identifier: Apache-2.0
// Parts of a tensor as boxes of elements: where they meet, where two overlap, what they leave open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ckpt::ops {

/// The elements [offsets, offsets + shape) of a tensor of as many dimensions; without any, its one element. Nothing is
/// negative, and no sum or product of what's in it passes 2^63.
struct Box {
  std::vector<std::int64_t> offsets;
  std::vector<std::int64_t> shape;

  friend bool operator==(const Box&, const Box&) = default;
};

/// All of a tensor.
[[nodiscard]] Box whole_of(const std::vector<std::int64_t>& shape);
/// How many elements it has.
[[nodiscard]] std::uint64_t volume_of(const Box& box);
[[nodiscard]] bool lies_inside(const Box& box, const std::vector<std::int64_t>& shape);
/// What lies in both; nothing if that's no element.
[[nodiscard]] std::optional<Box> intersection_of(const Box& a, const Box& b);

/// Two that overlap. Time grows with those that share a range of one dimension, not with all pairs.
[[nodiscard]] std::optional<std::pair<std::size_t, std::size_t>> find_overlap(const std::vector<Box>& boxes);
/// A box inside `of` that none of `boxes` reaches into; nothing if together they hold all of it.
[[nodiscard]] std::optional<Box> find_gap(const Box& of, const std::vector<Box>& boxes);

/// As Python slices: "[0:4, 2:6]".
[[nodiscard]] std::string to_string(const Box& box);

}  // namespace ckpt::ops
