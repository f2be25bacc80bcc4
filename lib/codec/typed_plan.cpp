// SPDX-License-Identifier: Apache-2.0
// Costs are those of an order-zero code for each plane, made from a sample's histograms. A sample sees too few values
// of a rich plane, so its entropy is corrected (Miller, Madow: (symbols - 1) / 2n nats).
#include "codec/typed_plan.hpp"

#include "codec/byte_histogram.hpp"
#include "codec/kernels.hpp"
#include "codec/typed_format.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

namespace ckpt::codec {
namespace {

/// Elements that a plan is made from.
constexpr std::size_t sample_elements = 16384;
constexpr std::size_t sample_runs = 16;
/// A group with fewer elements costs more in tables than it gains.
constexpr std::size_t least_group = 4096;
/// Of the sample, below which a group's histograms say little.
constexpr std::size_t least_sampled = 256;
/// What groups must make of a delta to be taken where speed counts.
constexpr double group_gain = 0.95;
/// Folding only changes the order of few values: what it doesn't matter to, rounding mustn't decide.
constexpr double clearly_less = 1 - 1e-9;
/// In bits, for each stream: its head, and the tables of its code.
constexpr double stream_cost = 8 * (stream_head + 60);

template <class T>
std::byte* bytes_of(std::vector<T>& numbers) {
  return reinterpret_cast<std::byte*>(numbers.data());
}
template <class T>
const std::byte* bytes_of(std::span<const T> numbers) {
  return reinterpret_cast<const std::byte*>(numbers.data());
}

/// The element at each sampled place, one after the other.
template <class T>
std::vector<T> sample_of(ByteView values) {
  const std::size_t count = values.size() / sizeof(T);
  std::vector<T> sample(std::min(count, sample_elements));
  if (count <= sample_elements) {
    if (count > 0) std::memcpy(sample.data(), values.data(), count * sizeof(T));
    return sample;
  }
  constexpr std::size_t run = sample_elements / sample_runs;
  const std::size_t step = (count - run) / (sample_runs - 1);
  for (std::size_t r = 0; r < sample_runs; ++r) {
    std::memcpy(sample.data() + r * run, values.data() + r * step * sizeof(T), run * sizeof(T));
  }
  return sample;
}

template <class T>
double planes_bits(std::span<const T> residuals) {
  Bytes held(residuals.size_bytes());
  std::array<std::byte*, sizeof(T)> planes;
  for (std::size_t p = 0; p < sizeof(T); ++p) planes[p] = held.data() + p * residuals.size();
  kernels().of<T>().split(bytes_of(residuals), residuals.size(), planes.data());
  double bits = 0;
  for (const std::byte* plane : planes) bits += histogram_of({plane, residuals.size()}).stored_bits();
  return bits;
}

/// What one bit of a bitmap takes where a share `p` of them is set.
double bitmap_bits(double p) {
  if (p == 0 || p == 1) return 0;
  const double entropy = -(p * std::log2(p) + (1 - p) * std::log2(1 - p));
  constexpr double huffman_floor = 1.0 / 8;
  return std::max(entropy * 1.03, std::min(huffman_floor, entropy * 1.3));
}

struct PricedGroup {
  GroupPlan plan;
  double bits = 0;  ///< of the sample
};

template <class T>
PricedGroup price(std::span<const T> residuals, GroupPlan plan) {
  PricedGroup planes{.plan = plan, .bits = planes_bits(residuals)};
  const auto zeros = static_cast<std::size_t>(std::count(residuals.begin(), residuals.end(), T{0}));
  if (zeros * 2 < residuals.size() || residuals.empty()) return planes;
  std::vector<T> kept(residuals.size());
  Bytes bits((residuals.size() + 7) / 8);
  kept.resize(kernels().of<T>().pack_nonzero(bytes_of(residuals), residuals.size(), bytes_of(kept), bits.data()));
  const auto n = static_cast<double>(residuals.size());
  PricedGroup sparse{.plan = plan,
                     .bits = planes_bits<T>(kept) + n * bitmap_bits(static_cast<double>(kept.size()) / n)};
  sparse.plan.form = GroupForm::sparse;
  return sparse.bits < planes.bits ? sparse : planes;
}

/// What a share of the differences lies below, for each of the rising shares.
template <class T, std::size_t n>
std::array<T, n> lower_ends(std::span<const T> differences, const std::array<double, n>& shares) {
  const auto less = [](T a, T b) {
    using Signed = std::make_signed_t<T>;
    return static_cast<Signed>(a) < static_cast<Signed>(b);
  };
  std::array<std::size_t, n> places;
  for (std::size_t i = 0; i < n; ++i) {
    places[i] = static_cast<std::size_t>(shares[i] * static_cast<double>(differences.size() - 1));
  }
  // What twice the last share of a few lies below leaves enough, mostly, and little to look through.
  constexpr std::size_t probes = 512;
  std::vector<T> low(differences.begin(), differences.end());
  if (differences.size() > 4 * probes) {
    std::array<T, probes> probe;
    for (std::size_t i = 0; i < probes; ++i) probe[i] = differences[i * (differences.size() / probes)];
    const auto bound = probe.begin() + static_cast<std::ptrdiff_t>(2 * shares.back() * probes);
    std::nth_element(probe.begin(), bound, probe.end(), less);
    std::size_t count = 0;
    for (const T d : differences) {
      low[count] = d;
      count += less(*bound, d) ? 0U : 1U;
    }
    if (count > places.back())
      low.resize(count);
    else
      low.assign(differences.begin(), differences.end());
  }
  std::array<T, n> ends;
  auto end = low.end();
  for (std::size_t i = n; i-- > 0;) {
    const auto at = low.begin() + static_cast<std::ptrdiff_t>(places[i]);
    std::nth_element(low.begin(), at, end, less);
    ends[i] = *at;
    end = at + 1;
  }
  return ends;
}

/// The best way to store differences that the sample gives: folded where they lie on both sides of zero alike, or from
/// their lower end on, where all have moved one way (a moment that decays, a counter).
template <class T>
PricedGroup plan_differences(std::span<const T> differences) {
  if (differences.empty()) return {};
  std::vector<T> residuals(differences.size());
  const auto moved = [&](T center, Sign sign) {
    const Kernels<T>& k = kernels().of<T>();
    const auto kernel = sign == Sign::folded ? k.zigzag : k.recenter;
    kernel(bytes_of(differences), center, differences.size(), bytes_of(residuals));
    return price<T>(residuals, {.sign = sign, .center = center});
  };
  PricedGroup best = moved(0, Sign::folded);
  if (best.plan.form == GroupForm::sparse) return best;
  for (const T center : lower_ends<T, 2>(differences, {0.001, 0.02})) {
    const PricedGroup other = moved(center, Sign::kept);
    if (other.bits < best.bits * clearly_less) best = other;
  }
  return best;
}

/// Ranges of keys with enough elements each, from the lowest.
std::vector<std::uint8_t> last_keys(const std::vector<std::uint8_t>& keys, std::size_t count) {
  std::array<std::size_t, 256> counts{};
  for (const std::uint8_t key : keys) ++counts[key];
  const double scale = static_cast<double>(count) / static_cast<double>(keys.size());
  std::vector<std::uint8_t> ends;
  std::size_t sampled = 0;
  for (unsigned key = 0; key < 256; ++key) {
    sampled += counts[key];
    if (sampled < least_sampled || static_cast<double>(sampled) * scale < least_group) continue;
    ends.push_back(static_cast<std::uint8_t>(key));
    sampled = 0;
    if (ends.size() == max_groups) break;
  }
  // What is left is too little for a group, and joins the last one.
  if (ends.empty()) ends.push_back(0);
  ends.back() = 0xff;
  return ends;
}

template <class T>
PricedPlan finish(TypedPlan plan, double sample_bits, std::size_t sampled, std::size_t count) {
  const double streams = static_cast<double>(plan.groups.size() * sizeof(T)) * stream_cost;
  const double bits = sample_bits / static_cast<double>(sampled) * static_cast<double>(count);
  const double share = (bits + streams) / static_cast<double>(count * sizeof(T) * 8);
  return {.plan = std::move(plan), .share = share};
}

template <class T>
PricedPlan plan_full_as(TypedPlan plan, ByteView values) {
  std::vector<T> residuals = sample_of<T>(values);
  if (plan.element.kind == NumberKind::floating) {
    kernels().of<T>().rotate_left(bytes_of(residuals), residuals.size(), bytes_of(residuals));
  }
  const PricedGroup group = price<T>(residuals, {});
  plan.groups = {group.plan};
  return finish<T>(std::move(plan), group.bits, residuals.size(), values.size() / sizeof(T));
}

template <class T>
PricedPlan plan_exclusive_or_as(TypedPlan plan, ByteView values, ByteView base) {
  std::vector<T> residuals = sample_of<T>(values);
  std::vector<T> against = sample_of<T>(base);
  kernels().of<T>().exclusive_or(bytes_of(residuals), bytes_of(against), residuals.size(), bytes_of(residuals));
  const PricedGroup group = price<T>(residuals, {});
  plan.predictor = Predictor::exclusive_or;
  plan.groups = {group.plan};
  return finish<T>(std::move(plan), group.bits, residuals.size(), values.size() / sizeof(T));
}

template <class T>
PricedPlan plan_delta_as(TypedPlan plan, ByteView values, ByteView base, Effort effort) {
  const Kernels<T>& k = kernels().of<T>();
  const std::size_t count = values.size() / sizeof(T);
  std::vector<T> differences = sample_of<T>(values);
  std::vector<T> against = sample_of<T>(base);
  const std::size_t n = differences.size();
  plan.predictor = Predictor::subtract;
  k.difference(bytes_of(differences), bytes_of(against), plan.element.kind, n, bytes_of(differences));

  const PricedGroup whole = plan_differences<T>(differences);
  plan.groups = {whole.plan};
  PricedPlan single = finish<T>(plan, whole.bits, n, count);
  if (plan.element.kind != NumberKind::floating || sizeof(T) == 1 || whole.bits == 0) return single;

  std::vector<std::uint8_t> keys(n);
  k.keys(bytes_of(against), n, keys.data());
  const std::vector<std::uint8_t> ends = last_keys(keys, count);
  if (ends.size() == 1) return single;
  const KeyGroups groups(ends);
  std::array<std::uint32_t, max_groups> counts{};
  k.count_members(bytes_of(against), n, groups, counts.data());
  std::vector<T> sorted(n + ends.size() * move_slack / sizeof(T));
  std::array<std::byte*, max_groups> places{};
  std::size_t begin = 0;
  for (std::size_t g = 0; g < ends.size(); ++g) {
    places[g] = bytes_of(sorted) + begin * sizeof(T);
    begin += counts[g] + move_slack / sizeof(T);
  }
  k.scatter(bytes_of(differences), bytes_of(against), n, groups, places.data());
  plan.groups.clear();
  double bits = 0;
  begin = 0;
  for (std::size_t g = 0; g < ends.size(); ++g) {
    PricedGroup group = plan_differences<T>(std::span<const T>(sorted).subspan(begin, counts[g]));
    group.plan.last_key = ends[g];
    plan.groups.push_back(group.plan);
    bits += group.bits;
    begin += counts[g] + move_slack / sizeof(T);
  }
  PricedPlan grouped = finish<T>(std::move(plan), bits, n, count);
  const double gain = effort == Effort::fast ? group_gain : 1;
  return grouped.share < single.share * gain ? grouped : single;
}

template <class Work>
PricedPlan for_width(Element element, std::uint8_t lead, ByteView raw, Work&& work) {
  const TypedPlan plan{.element = element, .lead = lead};
  if (raw.size() < std::size_t{lead} + element.width) return {.plan = plan, .share = 2};
  switch (element.width) {
    case 1: return work(plan, std::uint8_t{});
    case 2: return work(plan, std::uint16_t{});
    case 4: return work(plan, std::uint32_t{});
    default: return work(plan, std::uint64_t{});
  }
}

}  // namespace

PricedPlan plan_full(Element element, std::uint8_t lead, ByteView raw) {
  return for_width(element, lead, raw,
                   [&]<class T>(const TypedPlan& plan, T) { return plan_full_as<T>(plan, raw.subspan(lead)); });
}

PricedPlan plan_delta(Element element, std::uint8_t lead, ByteView raw, ByteView base, Effort effort) {
  return for_width(element, lead, raw, [&]<class T>(const TypedPlan& plan, T) {
    return plan_delta_as<T>(plan, raw.subspan(lead), base.subspan(lead), effort);
  });
}

PricedPlan plan_exclusive_or(Element element, std::uint8_t lead, ByteView raw, ByteView base) {
  return for_width(element, lead, raw, [&]<class T>(const TypedPlan& plan, T) {
    return plan_exclusive_or_as<T>(plan, raw.subspan(lead), base.subspan(lead));
  });
}

}  // namespace ckpt::codec
