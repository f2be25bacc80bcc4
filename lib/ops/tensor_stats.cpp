// SPDX-License-Identifier: Apache-2.0
// Elements are widened to double in short runs that stay in the cache; one loop over doubles then does all the
// counting.
#include "ops/tensor_stats.hpp"

#include "core/float_formats.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace ckpt::ops {
namespace {

constexpr std::size_t run_length = 1024;
constexpr std::size_t lanes = 4;

/// Squares of values between these neither vanish nor overflow in a sum of a run.
constexpr double least_squarable = 1e-150;
constexpr double most_squarable = 1e150;

using Widened = std::array<double, run_length>;

template <class Stored, class Convert>
void widen(ByteView from, std::size_t first, std::size_t count, Widened& to, Convert convert) {
  const std::byte* const at = from.data() + first * sizeof(Stored);
  for (std::size_t i = 0; i < count; ++i) {
    Stored value;
    std::memcpy(&value, at + i * sizeof(Stored), sizeof value);
    to[i] = static_cast<double>(convert(value));
  }
}

template <class Stored>
void widen(ByteView from, std::size_t first, std::size_t count, Widened& to) {
  widen<Stored>(from, first, count, to, [](Stored value) { return value; });
}

void widen_bits(ByteView from, std::size_t first, std::size_t count, Widened& to, unsigned bits,
                const std::array<float, 256>* values) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t bit = (first + i) * bits;
    unsigned pair = std::to_integer<unsigned>(from[bit / 8]);
    if (bit % 8 + bits > 8) pair |= std::to_integer<unsigned>(from[bit / 8 + 1]) << 8U;
    const unsigned code = (pair >> (bit % 8)) & ((1U << bits) - 1);
    to[i] = values != nullptr ? double{(*values)[code]} : double{static_cast<float>(code)};
  }
}

/// How the elements of a type are stored, as numbers: parts of complex ones, halves of packed ones.
struct Numbers {
  unsigned bits = 0;
  unsigned per_element = 1;
};

Numbers numbers_of(DType dtype) {
  switch (dtype) {
    case DType::complex128:
    case DType::complex64:
    case DType::complex32: return {.bits = bits_of(dtype) / 2, .per_element = 2};
    case DType::float4_e2m1fn_x2: return {.bits = 4, .per_element = 2};
    default: return {.bits = bits_of(dtype), .per_element = 1};
  }
}

void widen_numbers(DType dtype, unsigned bits, ByteView from, std::size_t first, std::size_t count, Widened& to) {
  switch (dtype) {
    case DType::float64:
    case DType::complex128: return widen<double>(from, first, count, to);
    case DType::float32:
    case DType::complex64: return widen<float>(from, first, count, to);
    case DType::float16:
    case DType::complex32: return widen<std::uint16_t>(from, first, count, to, decode_float16);
    case DType::bfloat16: return widen<std::uint16_t>(from, first, count, to, decode_bfloat16);
    case DType::int64: return widen<std::int64_t>(from, first, count, to);
    case DType::int32:
    case DType::qint32: return widen<std::int32_t>(from, first, count, to);
    case DType::int16: return widen<std::int16_t>(from, first, count, to);
    case DType::int8:
    case DType::qint8: return widen<std::int8_t>(from, first, count, to);
    case DType::uint64: return widen<std::uint64_t>(from, first, count, to);
    case DType::uint32: return widen<std::uint32_t>(from, first, count, to);
    case DType::uint16: return widen<std::uint16_t>(from, first, count, to);
    case DType::uint8:
    case DType::quint8: return widen<std::uint8_t>(from, first, count, to);
    case DType::boolean: return widen<std::uint8_t>(from, first, count, to, [](std::uint8_t v) { return v != 0; });
    default: return widen_bits(from, first, count, to, bits, small_float_values(dtype));
  }
}

}  // namespace

bool is_numeric(DType dtype) {
  switch (dtype) {
    case DType::opaque:
    case DType::bits1x8:
    case DType::bits2x4:
    case DType::bits4x2:
    case DType::bits8:
    case DType::bits16:
    case DType::width8:
    case DType::width16:
    case DType::width32:
    case DType::width64:
    case DType::width128: return false;
    default: return true;
  }
}

void StatsAccumulator::add(DType dtype, ByteView elements, std::uint64_t count) {
  const Numbers numbers = numbers_of(dtype);
  const std::size_t all = static_cast<std::size_t>(count) * numbers.per_element;
  Widened values;
  for (std::size_t first = 0; first < all; first += run_length) {
    const std::size_t length = std::min(run_length, all - first);
    widen_numbers(dtype, numbers.bits, elements, first, length, values);
    add_values(std::span(values).first(length));
  }
}

void StatsAccumulator::add_values(std::span<const double> values) {
  std::array<double, lanes> low{};
  std::array<double, lanes> high{};
  std::array<double, lanes> sum{};
  std::array<double, lanes> squares{};
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
  for (; i + lanes <= values.size(); i += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) take(lane, values[i + lane]);
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
