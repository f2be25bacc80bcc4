// SPDX-License-Identifier: Apache-2.0
#include "ops/diff_tensors.hpp"

#include "core/pipeline.hpp"
#include "core/stop.hpp"
#include "ops/diff_plan.hpp"
#include "ops/strided_gather.hpp"
#include "ops/tensor_reader.hpp"
#include "ops/value_signs.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

namespace ckpt::ops {
namespace {

constexpr std::size_t blocks_a_worker = 2;
/// Elements that are compared at once: they stay in the processor's cache.
constexpr std::uint64_t step_elements = 32768;
/// Bytes of a view that are gathered at once, on each side.
constexpr std::uint64_t gather_step = 8U << 20U;

/// The file that a worker has at hand on one side.
class OpenFile {
 public:
  explicit OpenFile(const DiffSide& side) : side_(side) {}
  RandomBytes& get(std::size_t file, std::size_t blocks) {
    if (bytes_ == nullptr || file_ != file || blocks_ < blocks) {
      bytes_.reset();
      bytes_ = side_.open(file, blocks);
      file_ = file;
      blocks_ = blocks;
    }
    return *bytes_;
  }

 private:
  const DiffSide& side_;
  std::unique_ptr<RandomBytes> bytes_;
  std::size_t file_ = 0;
  std::size_t blocks_ = 0;
};

/// Elements of a contiguous view as its user sees them.
class ElementReader {
 public:
  ElementReader(RandomBytes& bytes, const Tensor& tensor) : bytes_(bytes), tensor_(tensor) {}

  /// Valid until the next call. `first` stands at a whole byte.
  ByteView read(std::uint64_t first, std::uint64_t count) {
    const std::uint64_t begin = tensor_.offset + first * bits_of(tensor_.dtype) / 8;
    const auto size = static_cast<std::size_t>(bytes_of(count, tensor_.dtype));
    ByteView there = bytes_.at(begin);
    if (there.size() < size) {
      joined_.resize(size);
      bytes_.read(begin, joined_);
      there = joined_;
    }
    return resolve_signs(tensor_, there.first(size), resolved_);
  }

 private:
  RandomBytes& bytes_;
  const Tensor& tensor_;
  Bytes joined_;
  Bytes resolved_;
};

/// One worker's way through its share.
class ShareWork {
 public:
  ShareWork(const DiffSide& a, const DiffSide& b, const DiffRule& rule, const Monitor& monitor)
      : a_(a), b_(b), rule_(rule), monitor_(monitor) {}

  DiffNumbers run(const DiffPart& part, const Comparison& comparison) {
    const SimplePair pair = simplify(*comparison.a, *comparison.b);
    DiffNumbers numbers;
    if (part.strided) {
      RandomBytes& a = a_.get(comparison.file_a, gather_blocks);
      RandomBytes& b = b_.get(comparison.file_b, gather_blocks);
      gather(a, pair.a, b, pair.b, numbers);
      return numbers;
    }
    ElementReader a(a_.get(comparison.file_a, blocks_a_worker), pair.a);
    std::optional<ElementReader> b;
    if (!part.equal) b.emplace(b_.get(comparison.file_b, blocks_a_worker), pair.b);
    for (std::uint64_t done = 0; done < part.count; done += step_elements) {
      require_no_stop(monitor_);
      const std::uint64_t count = std::min(step_elements, part.count - done);
      const ByteView x = a.read(part.first + done, count);
      const ByteView y = b ? b->read(part.first + done, count) : x;
      add_pairs(rule_, pair.a.dtype, x, pair.b.dtype, y, count, numbers);
      read_ += bytes_of(count, pair.a.dtype) + (b ? bytes_of(count, pair.b.dtype) : 0);
    }
    return numbers;
  }

  /// Bytes of both sides so far.
  [[nodiscard]] std::uint64_t read() const { return read_; }

 private:
  /// Views of the same shape, in pieces along their outermost dimensions.
  void gather(RandomBytes& a, const Tensor& view_a, RandomBytes& b, const Tensor& view_b, DiffNumbers& to) {
    const std::uint64_t size = std::max(contiguous_bytes(view_a).value_or(0), contiguous_bytes(view_b).value_or(0));
    const bool whole_bytes = bits_of(view_a.dtype) % 8 == 0 && bits_of(view_b.dtype) % 8 == 0;
    if (size > gather_step && whole_bytes && !view_a.shape.empty()) {
      const std::int64_t rows = view_a.shape.front();
      const std::uint64_t row = std::max<std::uint64_t>(1, size / static_cast<std::uint64_t>(rows));
      const auto step = static_cast<std::int64_t>(std::max<std::uint64_t>(1, gather_step / row));
      for (std::int64_t first = 0; first < rows; first += step) {
        const std::int64_t count = std::min(step, rows - first);
        gather(a, slice(view_a, first, count), b, slice(view_b, first, count), to);
      }
      return;
    }
    require_no_stop(monitor_);
    const Bytes x = contiguous(a, view_a);
    const Bytes y = contiguous(b, view_b);
    add_pairs(rule_, view_a.dtype, x, view_b.dtype, y, element_count(view_a).value_or(0), to);
    read_ += x.size() + y.size();
  }

  /// Rows [first, first + count) of the outermost dimension; a single one without it.
  static Tensor slice(Tensor view, std::int64_t first, std::int64_t count) {
    const auto skipped = static_cast<std::uint64_t>(first) * static_cast<std::uint64_t>(view.strides.front());
    view.offset += skipped * bits_of(view.dtype) / 8;
    if (count > 1) {
      view.shape.front() = count;
      return view;
    }
    view.shape.erase(view.shape.begin());
    view.strides.erase(view.strides.begin());
    return view;
  }

  Bytes contiguous(RandomBytes& bytes, const Tensor& view) const {
    Bytes gathered;
    Bytes scratch;
    gather_strided(bytes, view, monitor_,
                   [&](ByteView elements) { append(gathered, resolve_signs(view, elements, scratch)); });
    return gathered;
  }

  OpenFile a_;
  OpenFile b_;
  const DiffRule& rule_;
  const Monitor& monitor_;
  std::uint64_t read_ = 0;
};

struct ShareResult {
  std::vector<DiffNumbers> numbers;  ///< of each part
  std::uint64_t read = 0;
};

void repeat(DiffNumbers& numbers, std::uint64_t times) {
  const auto factor = static_cast<long double>(times);
  numbers.changed *= times;
  numbers.sum_abs *= factor;
  numbers.sum_squares *= factor;
  numbers.squares_a *= factor;
  numbers.squares_b *= factor;
  numbers.products *= factor;
  for (std::uint64_t* count : {&numbers.nan_a, &numbers.nan_b, &numbers.inf_a, &numbers.inf_b}) *count *= times;
}

}  // namespace

bool can_compare(const Tensor& a, const Tensor& b) {
  if (!a.has_bytes || !b.has_bytes || !are_comparable(a.dtype, b.dtype)) return false;
  if (a.shape == b.shape) return true;
  return element_count(a) == element_count(b) && is_contiguous(a) && is_contiguous(b);
}

Compared compare_all(const DiffSide& a, const DiffSide& b, const std::vector<Comparison>& comparisons,
                     const DiffRule& rule, unsigned jobs, Monitor& monitor) {
  const DiffPlan plan = plan_diff(a, b, comparisons, rule);

  Compared compared;
  compared.numbers.resize(comparisons.size());
  const unsigned workers = worker_count(jobs);
  Pool<std::unique_ptr<ShareWork>> pool;
  std::uint64_t done = 0;
  run_ordered(
      plan.shares.size(), workers, std::size_t{workers} + 2,
      [&](std::size_t s) {
        auto work = pool.take();
        if (*work == nullptr) *work = std::make_unique<ShareWork>(a, b, rule, monitor);
        const std::uint64_t before = (*work)->read();
        ShareResult result;
        for (std::size_t p = plan.shares[s].first; p < plan.shares[s].second; ++p) {
          const DiffPart& part = plan.parts[p];
          result.numbers.push_back((*work)->run(part, comparisons[part.pair]));
        }
        result.read = (*work)->read() - before;
        return result;
      },
      [&](std::size_t s, const ShareResult& result) {
        for (std::size_t i = 0; i < result.numbers.size(); ++i) {
          const DiffPart& part = plan.parts[plan.shares[s].first + i];
          compared.numbers[part.pair] += result.numbers[i];
          done += bytes_of(part.count, comparisons[part.pair].a->dtype);
        }
        compared.bytes_read += result.read;
        monitor.progress({.stage = "compare", .done = done, .total = plan.bytes});
      });
  for (std::size_t i = 0; i < comparisons.size(); ++i) {
    repeat(compared.numbers[i], simplify(*comparisons[i].a, *comparisons[i].b).repeats);
    compared.numbers[i].elements = element_count(*comparisons[i].a).value_or(0);
  }
  return compared;
}

}  // namespace ckpt::ops
