// SPDX-License-Identifier: Apache-2.0
// Dimensions in the order of their strides, neighbours merged where they tile or overlap, leave the fewest loops: one
// for every dense view, whatever the order of its dimensions is.
#include "ops/view_runs.hpp"

#include "core/bytes.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace ckpt::ops {
namespace {

struct Dimension {
  std::uint64_t count = 1;
  std::uint64_t stride = 1;  ///< in elements
  std::uint64_t reach = 0;   ///< from its first element to the last of it and of those below it
};

/// The narrowest first, which is always one of stride 1.
std::vector<Dimension> loops_of(const Tensor& tensor) {
  std::vector<Dimension> given;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    // An expanded dimension names the same elements again.
    if (tensor.shape[i] == 1 || tensor.strides[i] == 0) continue;
    given.push_back({static_cast<std::uint64_t>(tensor.shape[i]), static_cast<std::uint64_t>(tensor.strides[i])});
  }
  std::sort(given.begin(), given.end(), [](const Dimension& a, const Dimension& b) { return a.stride < b.stride; });
  std::vector<Dimension> loops = {Dimension{}};
  for (const Dimension& next : given) {
    Dimension& last = loops.back();
    if (next.stride % last.stride == 0 && next.stride <= last.count * last.stride) {
      last.count += (next.count - 1) * (next.stride / last.stride);
    } else {
      loops.push_back(next);
    }
  }
  std::uint64_t reach = 0;
  std::optional<std::uint64_t> named = 1;
  for (Dimension& loop : loops) {
    loop.reach = reach += (loop.count - 1) * loop.stride;
    named = named ? checked_mul(*named, loop.count) : named;
  }
  if (!named || *named > reach + 1) return {{.count = reach + 1, .stride = 1, .reach = reach}};
  return loops;
}

/// Walks a view's elements in [low, high), counted from the view's first one.
class Walk {
 public:
  Walk(std::vector<Dimension> loops, std::uint64_t low, std::uint64_t high,
       const std::function<void(std::uint64_t, std::uint64_t)>& consume)
      : loops_(std::move(loops)), low_(low), high_(high), consume_(consume) {}

  void run() { visit(loops_.size() - 1, 0); }

 private:
  void visit(std::size_t level, std::uint64_t base) {
    if (base >= high_ || base + loops_[level].reach < low_) return;
    if (level == 0) {
      const std::uint64_t first = std::max(base, low_);
      const std::uint64_t last = std::min(base + loops_[0].count, high_);
      if (first < last) consume_(first, last - first);
      return;
    }
    const Dimension& loop = loops_[level];
    const std::uint64_t below = base + loops_[level - 1].reach;
    const std::uint64_t skipped = low_ > below ? (low_ - below) / loop.stride : 0;
    for (std::uint64_t i = skipped; i < loop.count && base + i * loop.stride < high_; ++i) {
      visit(level - 1, base + i * loop.stride);
    }
  }

  std::vector<Dimension> loops_;
  std::uint64_t low_;
  std::uint64_t high_;
  const std::function<void(std::uint64_t, std::uint64_t)>& consume_;
};

}  // namespace

void for_each_run(const Tensor& tensor, std::uint64_t begin, std::uint64_t end,
                  const std::function<void(std::uint64_t offset, std::uint64_t size)>& consume) {
  if (end <= tensor.offset || element_count(tensor).value_or(0) == 0) return;
  const std::uint64_t width = bits_of(tensor.dtype) / 8;
  const std::uint64_t low = begin <= tensor.offset ? 0 : (begin - tensor.offset + width - 1) / width;
  const std::uint64_t high = (end - tensor.offset) / width;
  Walk(loops_of(tensor), low, high, [&](std::uint64_t first, std::uint64_t count) {
    consume(tensor.offset + first * width, count * width);
  }).run();
}

}  // namespace ckpt::ops
