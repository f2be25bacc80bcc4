// SPDX-License-Identifier: Apache-2.0
// Elements are widened to double in short runs that stay in the cache; one loop over doubles then does all the
// counting.
#include "ops/tensor_stats.hpp"

#include "ops/widen.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace ckpt::ops {
namespace {

constexpr std::size_t stat_lanes = 4;

/// Squares of values between these neither vanish nor overflow in a sum of a run.
constexpr double least_squarable = 1e-150;
constexpr double most_squarable = 1e150;

}  // namespace

void StatsAccumulator::add(DType dtype, ByteView elements, std::uint64_t count) {
  const Numbers numbers = numbers_of(dtype);
  const std::size_t all = static_cast<std::size_t>(count) * numbers.per_element;
  Widened values;
  for (std::size_t first = 0; first < all; first += widened_run) {
    const std::size_t length = std::min(widened_run, all - first);
    widen(dtype, elements, first, length, values);
    add_values(std::span(values).first(length));
  }
}

void StatsAccumulator::add_values(std::span<const double> values) {
  std::array<double, stat_lanes> low{};
  std::array<double, stat_lanes> high{};
  std::array<double, stat_lanes> sum{};
  std::array<double, stat_lanes> squares{};
  low.fill(min_);
  high.fill(max_);
  std::size_t odd = 0;  // not finite
  const auto take = [&](std::size_t lane, double value) {
    const bool finite = value - value == 0;
    const double plain = finite ? value : 0;
    odd += finite ? 0U : 1U;
    sum[lane] += plain;
    squares[lane] += plain * plain;
    low[lane] = finite && value < low[lane] ? value : low[lane];
    high[lane] = finite && value > high[lane] ? value : high[lane];
  };
  std::size_t i = 0;
  for (; i + stat_lanes <= values.size(); i += stat_lanes) {
    for (std::size_t lane = 0; lane < stat_lanes; ++lane) take(lane, values[i + lane]);
  }
  for (; i < values.size(); ++i) take(0, values[i]);

  min_ = *std::min_element(low.begin(), low.end());
  max_ = *std::max_element(high.begin(), high.end());
  finite_ += values.size() - odd;
  if (odd > 0) {
    const auto nan = std::count_if(values.begin(), values.end(), [](double v) { return std::isnan(v); });
    nan_ += static_cast<std::uint64_t>(nan);
    inf_ += odd - static_cast<std::uint64_t>(nan);
  }
  const double total = (squares[0] + squares[1]) + (squares[2] + squares[3]);
  // A run of zeros goes this way, too: a test for each costs little.
  if (total < least_squarable * least_squarable || total > most_squarable * most_squarable) {
    add_carefully(values);
    return;
  }
  sum_ += (sum[0] + sum[1]) + (sum[2] + sum[3]);
  squares_ += total;
}

void StatsAccumulator::add_carefully(std::span<const double> values) {
  for (const double value : values) {
    if (value == 0 || !std::isfinite(value)) continue;
    const long double wide = value;
    sum_ += wide;
    squares_ += wide * wide;
  }
}

void StatsAccumulator::merge(const StatsAccumulator& other) {
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
  sum_ += other.sum_;
  squares_ += other.squares_;
  finite_ += other.finite_;
  nan_ += other.nan_;
  inf_ += other.inf_;
}

TensorStats StatsAccumulator::result(std::uint64_t repeats) const {
  TensorStats stats;
  stats.nan = nan_ * repeats;
  stats.inf = inf_ * repeats;
  if (finite_ == 0 || repeats == 0) return stats;
  stats.min = min_;
  stats.max = max_;
  stats.mean = static_cast<double>(sum_ / static_cast<long double>(finite_));
  stats.norm = static_cast<double>(std::sqrt(squares_ * static_cast<long double>(repeats)));
  return stats;
}

}  // namespace ckpt::ops
