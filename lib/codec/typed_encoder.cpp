// SPDX-License-Identifier: Apache-2.0
#include "codec/kernels.hpp"
#include "codec/partition.hpp"
#include "codec/typed_block.hpp"
#include "codec/typed_format.hpp"

#include <array>
#include <cstring>
#include <stdexcept>

namespace ckpt::codec {
namespace {

std::uint8_t* as_u8(std::byte* p) { return reinterpret_cast<std::uint8_t*>(p); }

/// Differences in the order of their groups; returns the groups' sizes. `keys` has room for a byte an element.
template <class T>
std::vector<std::uint32_t> group_differences(const TypedPlan& plan, const std::byte* values, const std::byte* base,
                                             std::size_t n, std::uint8_t* keys, std::byte* out) {
  const Kernels<T>& k = kernels().of<T>();
  k.keys(base, n, keys);
  Partition partition(plan.groups, {keys, n});
  alignas(64) std::array<std::array<std::byte, Partition::step * sizeof(T)>, Partition::lanes> differences;
  for (std::size_t at = 0; at < partition.lane_size(); at += Partition::step) {
    for (std::size_t l = 0; l < Partition::lanes; ++l) {
      const auto [first, count] = partition.range(l, at);
      const std::size_t byte = first * sizeof(T);
      k.difference(values + byte, base + byte, plan.element.kind, count, differences[l].data());
    }
    partition.scatter<T>(at, differences, out);
  }
  return partition.counts();
}

/// The residuals that aren't zero, moved to the front; `bits` says where they were.
template <class T>
std::size_t compact(std::byte* residuals, std::size_t count, std::byte* bits) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; i += 8) {
    unsigned eight = 0;
    for (std::size_t j = 0; j < std::min<std::size_t>(8, count - i); ++j) {
      T value = 0;
      std::memcpy(&value, residuals + (i + j) * sizeof(T), sizeof(T));
      std::memcpy(residuals + kept * sizeof(T), &value, sizeof(T));
      kept += value != 0 ? 1 : 0;
      eight |= (value != 0 ? 1U : 0U) << j;
    }
    *bits++ = static_cast<std::byte>(eight);
  }
  return kept;
}

}  // namespace

template <class T>
void TypedEncoder::encode_group(const GroupPlan& group, std::byte* residuals, std::size_t count, Effort effort,
                                Bytes& out) {
  const Kernels<T>& k = kernels().of<T>();
  std::size_t elements = count;
  if (group.form == GroupForm::sparse) {
    const std::size_t size = (count + 7) / 8;
    elements = compact<T>(residuals, count, planes_.data());
    streams_.encode({planes_.data(), size}, effort, out);
  }
  const auto plane = [&](std::size_t p) { return planes_.data() + p * elements; };
  for_each_chunk(elements, [&](std::size_t first, std::size_t n) {
    for (unsigned p = 0; p < sizeof(T); ++p) {
      k.extract(residuals + first * sizeof(T), p * 8, n, as_u8(plane(p)) + first);
    }
  });
  for (unsigned p = 0; p < sizeof(T); ++p) streams_.encode({plane(p), elements}, effort, out);
}

template <class T>
void TypedEncoder::encode_elements(const TypedPlan& plan, std::size_t head_at, ByteView values, ByteView base,
                                   Effort effort, Bytes& out) {
  const Kernels<T>& k = kernels().of<T>();
  const std::size_t n = values.size() / sizeof(T);
  residuals_.reserve(std::max<std::size_t>(values.size(), 1));
  planes_.reserve(std::max<std::size_t>(values.size(), 1));
  std::byte* residuals = residuals_.data();

  std::vector<std::uint32_t> counts = {static_cast<std::uint32_t>(n)};
  if (plan.predictor == Predictor::exclusive_or) {
    k.exclusive_or(values.data(), base.data(), n, residuals);
  } else if (plan.predictor == Predictor::none && plan.element.kind == NumberKind::floating) {
    k.rotate_left(values.data(), n, residuals);
  } else if (plan.predictor == Predictor::none) {
    if (n > 0) std::memcpy(residuals, values.data(), n * sizeof(T));
  } else if (plan.groups.size() == 1) {
    k.difference(values.data(), base.data(), plan.element.kind, n, residuals);
  } else {
    counts = group_differences<T>(plan, values.data(), base.data(), n, as_u8(planes_.data()), residuals);
  }

  for (std::size_t g = 0; g < counts.size(); ++g) {
    const GroupPlan& group = plan.groups[g];
    set_count(out, head_at, g, counts[g]);
    if (plan.predictor == Predictor::subtract) {
      const auto kernel = group.sign == Sign::folded ? k.zigzag : k.recenter;
      kernel(residuals, static_cast<T>(group.center), counts[g], residuals);
    }
    encode_group<T>(group, residuals, counts[g], effort, out);
    residuals += counts[g] * sizeof(T);
  }
}

void TypedEncoder::encode(const TypedPlan& plan, ByteView raw, ByteView base, Effort effort, Bytes& out) {
  const std::size_t head_at = out.size();
  append_head(plan, out);
  const std::size_t size = (raw.size() - plan.lead) / plan.element.width * plan.element.width;
  const ByteView values = raw.subspan(plan.lead, size);
  append(out, raw.first(plan.lead));
  append(out, raw.subspan(plan.lead + size));
  if (plan.rounding != Rounding::none) {
    rounded_.reserve(size);
    const auto& round = kernels().round;
    const auto kernel = plan.rounding == Rounding::to_bfloat16 ? round.to_bfloat16 : round.to_float16;
    kernel(base.data(), size / 2, rounded_.data());
    base = {rounded_.data(), size};
  } else if (!base.empty()) {
    base = base.subspan(plan.lead, size);
  }
  switch (plan.element.width) {
    case 1: return encode_elements<std::uint8_t>(plan, head_at, values, base, effort, out);
    case 2: return encode_elements<std::uint16_t>(plan, head_at, values, base, effort, out);
    case 4: return encode_elements<std::uint32_t>(plan, head_at, values, base, effort, out);
    case 8: return encode_elements<std::uint64_t>(plan, head_at, values, base, effort, out);
    default: throw std::logic_error("an element of impossible width");
  }
}

}  // namespace ckpt::codec
