// SPDX-License-Identifier: Apache-2.0
#include "ops/box.hpp"

#include <algorithm>
#include <numeric>

namespace ckpt::ops {
namespace {

std::int64_t end_of(const Box& box, std::size_t d) { return box.offsets[d] + box.shape[d]; }

bool is_empty(const Box& box) { return std::find(box.shape.begin(), box.shape.end(), 0) != box.shape.end(); }

/// The dimension in which most of them begin at places of their own: there a sweep compares the fewest.
std::size_t dimension_to_sweep(const std::vector<Box>& boxes) {
  std::size_t best = 0;
  std::size_t most = 0;
  std::vector<std::int64_t> begins(boxes.size());
  for (std::size_t d = 0; d < boxes.front().shape.size(); ++d) {
    for (std::size_t i = 0; i < boxes.size(); ++i) begins[i] = boxes[i].offsets[d];
    std::sort(begins.begin(), begins.end());
    const auto different = static_cast<std::size_t>(std::unique(begins.begin(), begins.end()) - begins.begin());
    if (different > most) best = d;
    most = std::max(most, different);
  }
  return best;
}

}  // namespace

Box whole_of(const std::vector<std::int64_t>& shape) { return {std::vector<std::int64_t>(shape.size(), 0), shape}; }

std::uint64_t volume_of(const Box& box) {
  std::uint64_t volume = 1;
  if (is_empty(box)) return 0;
  for (const std::int64_t n : box.shape) volume *= static_cast<std::uint64_t>(n);
  return volume;
}

bool lies_inside(const Box& box, const std::vector<std::int64_t>& shape) {
  if (box.offsets.size() != shape.size() || box.shape.size() != shape.size()) return false;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (box.offsets[d] < 0 || box.shape[d] < 0 || box.offsets[d] > shape[d] ||
        box.shape[d] > shape[d] - box.offsets[d]) {
      return false;
    }
  }
  return true;
}

std::optional<Box> intersection_of(const Box& a, const Box& b) {
  Box both = a;
  for (std::size_t d = 0; d < a.shape.size(); ++d) {
    both.offsets[d] = std::max(a.offsets[d], b.offsets[d]);
    both.shape[d] = std::min(end_of(a, d), end_of(b, d)) - both.offsets[d];
    if (both.shape[d] <= 0) return std::nullopt;
  }
  return both;
}

std::optional<std::pair<std::size_t, std::size_t>> find_overlap(const std::vector<Box>& boxes) {
  if (boxes.size() < 2) return std::nullopt;
  // All elements of a tensor without dimensions are the same one.
  if (boxes.front().shape.empty()) return std::pair(std::size_t{0}, std::size_t{1});
  const std::size_t d = dimension_to_sweep(boxes);
  std::vector<std::size_t> order(boxes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return boxes[a].offsets[d] < boxes[b].offsets[d]; });
  std::vector<std::size_t> reached;  // those that end past the place where the sweep is
  for (const std::size_t i : order) {
    std::erase_if(reached, [&](std::size_t other) { return end_of(boxes[other], d) <= boxes[i].offsets[d]; });
    for (const std::size_t other : reached) {
      if (intersection_of(boxes[i], boxes[other])) return std::pair(std::min(i, other), std::max(i, other));
    }
    reached.push_back(i);
  }
  return std::nullopt;
}

std::optional<Box> find_gap(const Box& of, const std::vector<Box>& boxes) {
  if (is_empty(of)) return std::nullopt;
  const auto meets = [&](const Box& box) { return intersection_of(of, box).has_value(); };
  const auto first = std::find_if(boxes.begin(), boxes.end(), meets);
  if (first == boxes.end()) return of;
  std::vector<Box> others;
  std::copy_if(first + 1, boxes.end(), std::back_inserter(others), meets);
  // What the first leaves open, cut into boxes one dimension after the other.
  const Box taken = *intersection_of(of, *first);
  Box rest = of;
  for (std::size_t d = 0; d < of.shape.size(); ++d) {
    Box before = rest;
    before.shape[d] = taken.offsets[d] - rest.offsets[d];
    if (auto gap = find_gap(before, others)) return gap;
    Box after = rest;
    after.offsets[d] = end_of(taken, d);
    after.shape[d] = end_of(rest, d) - after.offsets[d];
    if (auto gap = find_gap(after, others)) return gap;
    rest.offsets[d] = taken.offsets[d];
    rest.shape[d] = taken.shape[d];
  }
  return std::nullopt;
}

std::string to_string(const Box& box) {
  std::string text = "[";
  for (std::size_t d = 0; d < box.shape.size(); ++d) {
    text += (d == 0 ? "" : ", ") + std::to_string(box.offsets[d]) + ':' + std::to_string(end_of(box, d));
  }
  return text + ']';
}

}  // namespace ckpt::ops
