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
#include <numeric>
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
/// In bits, for each stream: its head, and the tables of its code.
constexpr double stream_cost = 8 * (stream_head + 60);

/// The element at each sampled place, one after the other.
Bytes sample_of(ByteView values, std::size_t width) {
  const std::size_t count = values.size() / width;
  if (count <= sample_elements) return {values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count * width)};
  constexpr std::size_t run = sample_elements / sample_runs;
  const std::size_t step = (count - run) / (sample_runs - 1);
  Bytes sample;
  sample.reserve(sample_elements * width);
  for (std::size_t r = 0; r < sample_runs; ++r) append(sample, values.subspan(r * step * width, run * width));
  return sample;
}

template <class T>
std::vector<T> as_numbers(const Bytes& bytes) {
  std::vector<T> numbers(bytes.size() / sizeof(T));
  if (!numbers.empty()) std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

template <class T>
double planes_bits(const std::vector<T>& residuals) {
  if (residuals.empty()) return 0;
  double bits = 0;
  for (unsigned p = 0; p < sizeof(T); ++p) {
    ByteHistogram histogram;
    for (const T r : residuals) histogram.add(static_cast<std::uint8_t>(r >> (8 * p)));
    bits += histogram.stored_bits();
  }
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
PricedGroup price(const std::vector<T>& residuals, GroupPlan plan) {
  PricedGroup planes{.plan = plan, .bits = planes_bits(residuals)};
  std::vector<T> kept;
  for (const T r : residuals) {
    if (r != 0) kept.push_back(r);
  }
  if (kept.size() * 2 > residuals.size()) return planes;
  const auto n = static_cast<double>(residuals.size());
  PricedGroup sparse{.plan = plan, .bits = planes_bits(kept) + n * bitmap_bits(static_cast<double>(kept.size()) / n)};
  sparse.plan.form = GroupForm::sparse;
  return sparse.bits < planes.bits ? sparse : planes;
}

template <class T>
T quantile(std::vector<T> differences, double share) {
  using Signed = std::make_signed_t<T>;
  const auto at =
      differences.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(differences.size() - 1));
  std::nth_element(differences.begin(), at, differences.end(),
                   [](T a, T b) { return static_cast<Signed>(a) < static_cast<Signed>(b); });
  return *at;
}

/// The best way to store differences that the sample gives: folded where they lie on both sides of zero alike, or from
/// their lower end on, where all have moved one way (a moment that decays, a counter).
template <class T>
PricedGroup plan_differences(const std::vector<T>& differences) {
  if (differences.empty()) return {};
  const auto moved = [&](T center, Sign sign) {
    std::vector<T> residuals(differences.size());
    const Kernels<T>& k = kernels().of<T>();
    const auto kernel = sign == Sign::folded ? k.zigzag : k.recenter;
    kernel(reinterpret_cast<const std::byte*>(differences.data()), center, differences.size(),
           reinterpret_cast<std::byte*>(residuals.data()));
    return price(residuals, {.sign = sign, .center = center});
  };
  PricedGroup best = moved(0, Sign::folded);
  if (best.plan.form == GroupForm::sparse) return best;
  for (const double share : {0.001, 0.02}) {
    const PricedGroup other = moved(quantile(differences, share), Sign::kept);
    if (other.bits < best.bits) best = other;
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
  const Bytes sample = sample_of(values, sizeof(T));
  const std::size_t n = sample.size() / sizeof(T);
  Bytes residuals(sample.size());
  if (plan.element.kind == NumberKind::floating) {
    kernels().of<T>().rotate_left(sample.data(), n, residuals.data());
  } else {
    residuals = sample;
  }
  const PricedGroup group = price(as_numbers<T>(residuals), {});
  plan.groups = {group.plan};
  return finish<T>(std::move(plan), group.bits, n, values.size() / sizeof(T));
}

template <class T>
PricedPlan plan_exclusive_or_as(TypedPlan plan, ByteView values, ByteView base) {
  const Bytes sample = sample_of(values, sizeof(T));
  const Bytes against = sample_of(base, sizeof(T));
  const std::size_t n = sample.size() / sizeof(T);
  Bytes residuals(sample.size());
  kernels().of<T>().exclusive_or(sample.data(), against.data(), n, residuals.data());
  const PricedGroup group = price(as_numbers<T>(residuals), {});
  plan.predictor = Predictor::exclusive_or;
  plan.groups = {group.plan};
  return finish<T>(std::move(plan), group.bits, n, values.size() / sizeof(T));
}

template <class T>
PricedPlan plan_delta_as(TypedPlan plan, ByteView values, ByteView base, Effort effort) {
  const Kernels<T>& k = kernels().of<T>();
  const std::size_t count = values.size() / sizeof(T);
  const Bytes sample = sample_of(values, sizeof(T));
  const Bytes against = sample_of(base, sizeof(T));
  const std::size_t n = sample.size() / sizeof(T);
  plan.predictor = Predictor::subtract;
  Bytes bytes(sample.size());
  k.difference(sample.data(), against.data(), plan.element.kind, n, bytes.data());
  const std::vector<T> differences = as_numbers<T>(bytes);

  const PricedGroup whole = plan_differences(differences);
  plan.groups = {whole.plan};
  PricedPlan single = finish<T>(plan, whole.bits, n, count);
  if (plan.element.kind != NumberKind::floating || sizeof(T) == 1 || whole.bits == 0) return single;

  std::vector<std::uint8_t> keys(n);
  k.keys(against.data(), n, keys.data());
  const std::vector<std::uint8_t> ends = last_keys(keys, count);
  if (ends.size() == 1) return single;
  plan.groups.clear();
  for (const std::uint8_t end : ends) plan.groups.push_back({.last_key = end});
  const KeyGroups groups = key_groups(plan.groups);
  std::vector<std::vector<T>> members(ends.size());
  for (std::size_t i = 0; i < n; ++i) members[groups.group_of(keys[i])].push_back(differences[i]);
  double bits = 0;
  for (std::size_t g = 0; g < ends.size(); ++g) {
    const PricedGroup group = plan_differences(members[g]);
    plan.groups[g] = group.plan;
    plan.groups[g].last_key = ends[g];
    bits += group.bits;
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
