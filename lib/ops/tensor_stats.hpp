// SPDX-License-Identifier: Apache-2.0
// Smallest and largest value, mean, 2-norm and non-finite values of elements that come in pieces.
//
// Every number type counts by its value; a complex number by its parts, each for itself; bool as 0 and 1; quantised
// integers as the integers that are stored. Sums don't overflow and don't lose small squares, also for float64. 64-bit
// integers are rounded to double.
#pragma once

#include "core/bytes.hpp"
#include "core/tensor.hpp"
#include "ops/widen.hpp"

#include <ckpt/list.hpp>

#include <cstdint>
#include <limits>
#include <span>

namespace ckpt::ops {

/// Not thread-safe. The result depends on how the elements are cut into pieces only as far as sums are rounded.
class StatsAccumulator {
 public:
  /// Takes `count` elements, which `elements` holds.
  void add(DType dtype, ByteView elements, std::uint64_t count);
  void merge(const StatsAccumulator& other);
  /// As if every element had come so many times.
  [[nodiscard]] TensorStats result(std::uint64_t repeats = 1) const;

 private:
  void add_values(std::span<const double> values);
  void add_carefully(std::span<const double> values);

  double min_ = std::numeric_limits<double>::infinity();
  double max_ = -std::numeric_limits<double>::infinity();
  long double sum_ = 0;
  long double squares_ = 0;
  std::uint64_t finite_ = 0;
  std::uint64_t nan_ = 0;
  std::uint64_t inf_ = 0;
};

}  // namespace ckpt::ops
