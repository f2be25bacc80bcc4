// SPDX-License-Identifier: Apache-2.0
#include "ops/diff_plan.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace ckpt::ops {
namespace {

/// A multiple of the size of a block.
constexpr std::uint64_t share_size = 16U << 20U;

/// Elements of less than a byte are read from whole bytes on.
std::uint64_t element_unit(DType a, DType b) { return bits_of(a) % 8 == 0 && bits_of(b) % 8 == 0 ? 1 : 8; }

bool read_alike(const Tensor& a, const Tensor& b) {
  return a.dtype == b.dtype && a.conjugate == b.conjugate && a.negative == b.negative;
}

/// Calls range(begin, end, equal) for the bytes of both files that lie in one block on either side, in order.
template <class Range>
void for_each_range(const StoredFile& a, std::uint64_t at_a, const StoredFile& b, std::uint64_t at_b,
                    std::uint64_t size, Range&& range) {
  for (std::uint64_t done = 0; done < size;) {
    const StoredFile::Place x = a.place_of(at_a + done);
    const StoredFile::Place y = b.place_of(at_b + done);
    const auto& block_x = a.container().index().blocks[x.block];
    const auto& block_y = b.container().index().blocks[y.block];
    const bool equal = at_a + done - x.begin == at_b + done - y.begin && block_x.raw_size == block_y.raw_size &&
                       block_x.hash == block_y.hash;
    const std::uint64_t step = std::min({x.end - at_a - done, y.end - at_b - done, size - done});
    range(done, done + step, equal);
    done += step;
  }
}

class DiffPlanner {
 public:
  DiffPlanner(const DiffSide& a, const DiffSide& b, const DiffRule& rule) : a_(a), b_(b), rule_(rule) {}

  void add(std::size_t index, const Comparison& comparison) {
    const SimplePair pair = simplify(*comparison.a, *comparison.b);
    const std::uint64_t count = element_count(pair.a).value_or(0);
    if (count == 0) return;
    if (!is_contiguous(pair.a) || !is_contiguous(pair.b)) {
      plan_.parts.push_back({.pair = index, .first = 0, .count = count, .strided = true});
      plan_.bytes += bytes_of(count, pair.a.dtype);
      return;
    }
    const std::size_t before = plan_.parts.size();
    add_ranges(index, comparison, pair, count);
    for (std::size_t p = before; p < plan_.parts.size(); ++p) {
      plan_.bytes += bytes_of(plan_.parts[p].count, pair.a.dtype);
    }
  }

  DiffPlan finish(const std::vector<Comparison>& comparisons) {
    std::uint64_t size = share_size;
    for (std::size_t p = 0; p < plan_.parts.size(); ++p) {
      const DiffPart& part = plan_.parts[p];
      const std::uint64_t own = bytes_of(part.count, comparisons[part.pair].a->dtype);
      if (part.strided || size + own > share_size) {
        plan_.shares.emplace_back(p, p);
        size = 0;
      }
      size = part.strided ? share_size : size + own;
      plan_.shares.back().second = p + 1;
    }
    return std::move(plan_);
  }

 private:
  void add_ranges(std::size_t index, const Comparison& comparison, const SimplePair& pair, std::uint64_t count) {
    const auto stored_a = read_alike(pair.a, pair.b) ? a_.stored(comparison.file_a) : nullptr;
    const auto stored_b = stored_a != nullptr ? b_.stored(comparison.file_b) : nullptr;
    const std::uint64_t unit = element_unit(pair.a.dtype, pair.b.dtype);
    if (stored_b == nullptr) {
      add_elements({.pair = index, .first = 0, .count = count}, unit);
      return;
    }
    const std::uint64_t bits = bits_of(pair.a.dtype);
    // Blocks don't respect elements everywhere: an element that's cut counts as different.
    const auto begin_of = [&](std::uint64_t byte) { return byte * 8 / bits / unit * unit; };
    const auto end_of = [&](std::uint64_t byte) {
      const std::uint64_t elements = (byte * 8 + bits - 1) / bits;
      return std::min(count, (elements + unit - 1) / unit * unit);
    };
    std::uint64_t done = 0;
    std::uint64_t different_to = 0;  // elements from `done` to here differ perhaps
    const auto flush = [&](std::uint64_t to) {
      if (different_to > done) {
        add_elements({.pair = index, .first = done, .count = different_to - done}, unit);
        done = different_to;
      }
      if (to > done && rule_.whole) {
        add_elements({.pair = index, .first = done, .count = to - done, .equal = true}, unit);
      }
      done = std::max(done, to);
    };
    for_each_range(*stored_a, pair.a.offset, *stored_b, pair.b.offset, bytes_of(count, pair.a.dtype),
                   [&](std::uint64_t begin, std::uint64_t end, bool equal) {
                     if (equal) return;
                     const std::uint64_t first = begin_of(begin);
                     if (first > different_to) flush(first);
                     different_to = end_of(end);
                   });
    flush(count);
  }

  void add_elements(DiffPart part, std::uint64_t unit) {
    // As many elements as make a share of the widest type.
    const std::uint64_t most = share_size / 16 / unit * unit;
    const std::uint64_t end = part.first + part.count;
    while (part.first < end) {
      part.count = std::min(most, end - part.first);
      plan_.parts.push_back(part);
      part.first += part.count;
    }
  }

  const DiffSide& a_;
  const DiffSide& b_;
  const DiffRule& rule_;
  DiffPlan plan_;
};

}  // namespace

SimplePair simplify(const Tensor& a, const Tensor& b) {
  SimplePair pair{.a = a, .b = b};
  if (a.shape != b.shape || element_count(a).value_or(0) == 0) return pair;
  struct Dim {
    std::int64_t stride_a, stride_b, size;
  };
  std::vector<Dim> dims;
  for (std::size_t i = 0; i < a.shape.size(); ++i) {
    if (a.shape[i] == 1) continue;
    if (a.strides[i] == 0 && b.strides[i] == 0) {
      pair.repeats *= static_cast<std::uint64_t>(a.shape[i]);
    } else {
      dims.push_back({a.strides[i], b.strides[i], a.shape[i]});
    }
  }
  std::stable_sort(dims.begin(), dims.end(), [](const Dim& x, const Dim& y) {
    return std::tie(x.stride_a, x.stride_b) > std::tie(y.stride_a, y.stride_b);
  });
  for (Tensor* tensor : {&pair.a, &pair.b}) {
    tensor->shape.clear();
    tensor->strides.clear();
  }
  for (const Dim& dim : dims) {
    pair.a.shape.push_back(dim.size);
    pair.b.shape.push_back(dim.size);
    pair.a.strides.push_back(dim.stride_a);
    pair.b.strides.push_back(dim.stride_b);
  }
  return pair;
}

DiffPlan plan_diff(const DiffSide& a, const DiffSide& b, const std::vector<Comparison>& comparisons,
                   const DiffRule& rule) {
  std::vector<std::size_t> order(comparisons.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // Neighbours share blocks and open files.
  std::stable_sort(order.begin(), order.end(), [&](std::size_t x, std::size_t y) {
    return std::tuple(comparisons[x].file_a, comparisons[x].file_b, comparisons[x].a->offset) <
           std::tuple(comparisons[y].file_a, comparisons[y].file_b, comparisons[y].a->offset);
  });
  DiffPlanner planner(a, b, rule);
  for (const std::size_t i : order) planner.add(i, comparisons[i]);
  return planner.finish(comparisons);
}

}  // namespace ckpt::ops
