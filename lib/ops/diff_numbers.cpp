// SPDX-License-Identifier: Apache-2.0
// Runs whose bytes are equal are passed over at the speed of memcmp. Others are widened to doubles that stay in the
// cache, as in tensor_stats; whether an element has changed is asked of its bits, since -0.0 and NaNs hide in values.
#include "ops/diff_numbers.hpp"

#include "ops/widen.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace ckpt::ops {
namespace {

constexpr std::size_t lanes = 8;

/// Sums of a run outside these have lost something: they're made again, wider.
constexpr double least_sum = 1e-290;
constexpr double most_sum = 1e290;

using Flags = std::array<std::uint8_t, widened_run>;

template <std::size_t width>
std::uint64_t mark_different(const std::byte* a, const std::byte* b, std::size_t count, Flags& flags) {
  std::uint64_t different = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const bool differs = std::memcmp(a + i * width, b + i * width, width) != 0;
    flags[i] = differs ? 1 : 0;
    different += differs ? 1U : 0U;
  }
  return different;
}

unsigned code_at(ByteView from, std::size_t index, unsigned bits) {
  const std::size_t bit = index * bits;
  unsigned pair = std::to_integer<unsigned>(from[bit / 8]);
  if (bit % 8 + bits > 8) pair |= std::to_integer<unsigned>(from[bit / 8 + 1]) << 8U;
  return (pair >> (bit % 8)) & ((1U << bits) - 1);
}

/// By the bits of each element in [first, first + count).
std::uint64_t mark_bits(DType type, ByteView a, ByteView b, std::size_t first, std::size_t count, Flags& flags) {
  const unsigned bits = bits_of(type);
  const std::byte* const x = a.data() + first * bits / 8;
  const std::byte* const y = b.data() + first * bits / 8;
  switch (bits) {
    case 8: return mark_different<1>(x, y, count, flags);
    case 16: return mark_different<2>(x, y, count, flags);
    case 32: return mark_different<4>(x, y, count, flags);
    case 64: return mark_different<8>(x, y, count, flags);
    case 128: return mark_different<16>(x, y, count, flags);
    default: break;
  }
  std::uint64_t different = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const bool differs = code_at(a, first + i, bits) != code_at(b, first + i, bits);
    flags[i] = differs ? 1 : 0;
    different += differs ? 1U : 0U;
  }
  return different;
}

bool is_close(double a, double b, const Tolerance& tolerance) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return true;
  return std::abs(b - a) <= tolerance.absolute + tolerance.relative * std::abs(a) && std::isfinite(a);
}

/// By value; an element has changed if one of its numbers has. What is close is made equal.
std::uint64_t mark_values(const Widened& a, Widened& b, std::size_t count, unsigned per_element,
                          const Tolerance& tolerance, Flags& flags) {
  std::uint64_t different = 0;
  for (std::size_t i = 0; i < count; ++i) {
    bool differs = false;
    for (std::size_t n = i * per_element; n < (i + 1) * per_element; ++n) {
      if (is_close(a[n], b[n], tolerance)) {
        b[n] = a[n];
      } else {
        differs = true;
      }
    }
    flags[i] = differs ? 1 : 0;
    different += differs ? 1U : 0U;
  }
  return different;
}

/// The sums of one run.
struct Sums {
  std::array<double, lanes> abs{}, squares{}, squares_a{}, squares_b{}, products{}, most{};
};

bool is_exact(const std::array<double, lanes>& squares) {
  for (const double sum : squares) {
    if (sum != 0 && !(sum > least_sum && sum < most_sum)) return false;
  }
  return true;
}

double total(const std::array<double, lanes>& each) {
  double sum = 0;
  for (const double value : each) sum += value;
  return sum;
}

/// Pairs that don't count become zeros: those with a value that isn't finite, and equal ones unless all count. Gives
/// whether there were any of the former.
bool keep_counted(Widened& a, Widened& b, bool whole) {
  std::uint64_t odd = 0;
  const double all = whole ? 1 : 0;
  for (std::size_t i = 0; i < widened_run; ++i) {
    const double x = a[i];
    const double y = b[i];
    // A difference of a number from itself is 0, but for NaN and infinities.
    const double finite = (x - x) + (y - y) == 0 ? 1.0 : 0.0;
    const double counts = x != y ? 1.0 : all;
    a[i] = finite * counts != 0 ? x : 0;
    b[i] = finite * counts != 0 ? y : 0;
    odd += finite == 0 ? 1U : 0U;
  }
  return odd > 0;
}

void add_up(const Widened& a, const Widened& b, Sums& sums) {
  // Lanes of their own, since the compiler may not reorder a sum of doubles.
  for (std::size_t i = 0; i < widened_run; i += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const double x = a[i + lane];
      const double y = b[i + lane];
      const double difference = y - x;
      const double size = std::abs(difference);
      sums.abs[lane] += size;
      sums.squares[lane] += difference * difference;
      sums.squares_a[lane] += x * x;
      sums.squares_b[lane] += y * y;
      sums.products[lane] += x * y;
      sums.most[lane] = size > sums.most[lane] ? size : sums.most[lane];
    }
  }
}

/// The same where squares in double vanish or overflow.
void add_up_widely(const Widened& a, const Widened& b, DiffNumbers& to) {
  for (std::size_t i = 0; i < widened_run; ++i) {
    const long double x = a[i];
    const long double y = b[i];
    to.sum_squares += (y - x) * (y - x);
    to.squares_a += x * x;
    to.squares_b += y * y;
    to.products += x * y;
  }
}

void count_odd(const Widened& a, const Widened& b, std::size_t count, const Flags& changed, unsigned per_element,
               bool whole, DiffNumbers& to) {
  for (std::size_t i = 0; i < count; ++i) {
    if (!whole && changed[i / per_element] == 0) continue;
    to.nan_a += std::isnan(a[i]) ? 1U : 0U;
    to.nan_b += std::isnan(b[i]) ? 1U : 0U;
    to.inf_a += std::isinf(a[i]) ? 1U : 0U;
    to.inf_b += std::isinf(b[i]) ? 1U : 0U;
  }
}

/// The numbers of a run; zeros fill it up.
void add_run(const Widened& a, const Widened& b, DiffNumbers& to) {
  Sums sums;
  add_up(a, b, sums);
  to.max_abs = std::max(to.max_abs, *std::max_element(sums.most.begin(), sums.most.end()));
  to.sum_abs += total(sums.abs);
  // A difference that isn't zero has a square that is if it's small enough.
  const bool vanished = total(sums.abs) > 0 && total(sums.squares) == 0;
  const bool exact = is_exact(sums.squares) && is_exact(sums.squares_a) && is_exact(sums.squares_b);
  if (vanished || !exact) return add_up_widely(a, b, to);
  to.sum_squares += total(sums.squares);
  to.squares_a += total(sums.squares_a);
  to.squares_b += total(sums.squares_b);
  to.products += total(sums.products);
}

/// The bytes of a run are the same on both sides.
bool same_bytes(DType type, ByteView a, ByteView b, std::size_t first, std::size_t count) {
  const std::size_t bits = bits_of(type);
  const std::size_t begin = first * bits / 8;
  const std::size_t end = std::min({((first + count) * bits + 7) / 8, a.size(), b.size()});
  return std::memcmp(a.data() + begin, b.data() + begin, end - begin) == 0;
}

}  // namespace

bool have_values(DType a, DType b) {
  return is_numeric(a) && is_numeric(b) && numbers_of(a).per_element == numbers_of(b).per_element;
}

bool are_comparable(DType a, DType b) { return a == b || have_values(a, b); }

void add_pairs(const DiffRule& rule, DType type_a, ByteView a, DType type_b, ByteView b, std::uint64_t count,
               DiffNumbers& to) {
  const bool values = have_values(type_a, type_b);
  const unsigned per_element = values ? numbers_of(type_a).per_element : 1;
  const std::size_t run = widened_run / per_element;
  Widened x;
  Widened y;
  Flags changed;
  for (std::size_t first = 0; first < count; first += run) {
    const std::size_t length = std::min<std::size_t>(run, static_cast<std::size_t>(count) - first);
    if (!rule.whole && type_a == type_b && same_bytes(type_a, a, b, first, length)) continue;
    if (!values) {
      to.changed += mark_bits(type_a, a, b, first, length, changed);
      continue;
    }
    const std::size_t numbers = length * per_element;
    widen(type_a, a, first * per_element, numbers, x);
    widen(type_b, b, first * per_element, numbers, y);
    std::fill(x.begin() + static_cast<std::ptrdiff_t>(numbers), x.end(), 0.0);
    std::fill(y.begin() + static_cast<std::ptrdiff_t>(numbers), y.end(), 0.0);
    if (rule.tolerance || type_a != type_b) {
      to.changed += mark_values(x, y, length, per_element, rule.tolerance.value_or(Tolerance{}), changed);
    } else {
      to.changed += mark_bits(type_a, a, b, first, length, changed);
    }
    Widened counted_x = x;
    Widened counted_y = y;
    if (keep_counted(counted_x, counted_y, rule.whole)) {
      count_odd(x, y, numbers, changed, per_element, rule.whole, to);
    }
    add_run(counted_x, counted_y, to);
  }
}

}  // namespace ckpt::ops

namespace ckpt {

DiffNumbers& DiffNumbers::operator+=(const DiffNumbers& other) {
  elements += other.elements;
  changed += other.changed;
  max_abs = std::max(max_abs, other.max_abs);
  sum_abs += other.sum_abs;
  sum_squares += other.sum_squares;
  squares_a += other.squares_a;
  squares_b += other.squares_b;
  products += other.products;
  nan_a += other.nan_a;
  nan_b += other.nan_b;
  inf_a += other.inf_a;
  inf_b += other.inf_b;
  return *this;
}

double DiffNumbers::mean_abs() const {
  return elements == 0 ? 0 : static_cast<double>(sum_abs / static_cast<long double>(elements));
}

double DiffNumbers::l2() const { return static_cast<double>(std::sqrt(sum_squares)); }

double DiffNumbers::relative_l2() const {
  if (sum_squares == 0) return 0;
  return static_cast<double>(std::sqrt(sum_squares) / std::sqrt(squares_a));
}

std::optional<double> DiffNumbers::cosine() const {
  if (squares_a == 0 || squares_b == 0) return std::nullopt;
  const long double cosine = products / (std::sqrt(squares_a) * std::sqrt(squares_b));
  return static_cast<double>(std::clamp(cosine, -1.0L, 1.0L));
}

}  // namespace ckpt
