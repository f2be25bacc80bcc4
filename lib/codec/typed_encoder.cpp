// SPDX-License-Identifier: Apache-2.0
#include "codec/kernels.hpp"
#include "codec/typed_block.hpp"
#include "codec/typed_format.hpp"

#include <array>
#include <cstring>
#include <stdexcept>

namespace ckpt::codec {
namespace {

/// Differences in the order of their groups, each of which has move_slack bytes behind it in `out`; returns the groups'
/// sizes.
template <class T>
std::vector<std::uint32_t> group_differences(const TypedPlan& plan, const std::byte* values, const std::byte* base,
                                             std::size_t n, std::byte* out) {
  const Kernels<T>& k = kernels().of<T>();
  const KeyGroups groups = key_groups(plan.groups);
  std::vector<std::uint32_t> counts(groups.count());
  k.count_members(base, n, groups, counts.data());
  std::array<std::byte*, max_groups> ends{};
  for (std::size_t g = 0; g < counts.size(); ++g) {
    ends[g] = out;
    out += counts[g] * sizeof(T) + move_slack;
  }
  alignas(64) std::array<std::byte, chunk_elements * sizeof(T)> differences;
  for_each_chunk(n, [&](std::size_t first, std::size_t count) {
    const std::size_t at = first * sizeof(T);
    k.difference(values + at, base + at, plan.element.kind, count, differences.data());
    k.scatter(differences.data(), base + at, count, groups, ends.data());
  });
  return counts;
}

}  // namespace

template <class T, class Residuals>
void TypedEncoder::encode_group(GroupForm form, std::size_t count, std::byte* kept, Residuals residuals, Effort effort,
                                Bytes& out) {
  const Kernels<T>& k = kernels().of<T>();
  alignas(64) std::array<std::byte, chunk_elements * sizeof(T)> chunk;
  std::size_t elements = count;
  const auto plane = [&](std::size_t p) { return planes_.data() + p * elements; };
  const auto cut = [&](const std::byte* from, std::size_t first, std::size_t n) {
    std::array<std::byte*, sizeof(T)> to;
    for (std::size_t p = 0; p < sizeof(T); ++p) to[p] = plane(p) + first;
    k.split(from, n, to.data());
  };
  if (form == GroupForm::planes) {
    for_each_chunk(count, [&](std::size_t first, std::size_t n) {
      residuals(first, n, chunk.data());
      cut(chunk.data(), first, n);
    });
  } else {
    elements = 0;
    for_each_chunk(count, [&](std::size_t first, std::size_t n) {
      residuals(first, n, chunk.data());
      elements += k.pack_nonzero(chunk.data(), n, kept + elements * sizeof(T), planes_.data() + first / 8);
    });
    streams_.encode({planes_.data(), (count + 7) / 8}, effort, out);
    for_each_chunk(elements, [&](std::size_t first, std::size_t n) { cut(kept + first * sizeof(T), first, n); });
  }
  for (std::size_t p = 0; p < sizeof(T); ++p) streams_.encode({plane(p), elements}, effort, out);
}

template <class T>
void TypedEncoder::encode_elements(const TypedPlan& plan, std::size_t head_at, ByteView values, ByteView base,
                                   Effort effort, Bytes& out) {
  const Kernels<T>& k = kernels().of<T>();
  const std::size_t n = values.size() / sizeof(T);
  planes_.reserve(std::max<std::size_t>(values.size(), 1));
  residuals_.reserve(values.size() + plan.groups.size() * move_slack);
  const auto move_to_center = [&](const GroupPlan& group, const std::byte* in, std::size_t count, std::byte* to) {
    const auto kernel = group.sign == Sign::folded ? k.zigzag : k.recenter;
    kernel(in, static_cast<T>(group.center), count, to);
  };

  if (plan.groups.size() == 1) {
    const GroupPlan& group = plan.groups.front();
    set_count(out, head_at, 0, static_cast<std::uint32_t>(n));
    const auto residuals = [&](std::size_t first, std::size_t count, std::byte* to) {
      const std::byte* const from = values.data() + first * sizeof(T);
      const ByteView against = base.empty() ? base : base.subspan(first * sizeof(T), count * sizeof(T));
      if (plan.predictor == Predictor::subtract) {
        k.difference(from, against.data(), plan.element.kind, count, to);
        move_to_center(group, to, count, to);
      } else if (plan.predictor == Predictor::exclusive_or) {
        k.exclusive_or(from, against.data(), count, to);
      } else if (plan.element.kind == NumberKind::floating) {
        k.rotate_left(from, count, to);
      } else {
        std::memcpy(to, from, count * sizeof(T));
      }
    };
    return encode_group<T>(group.form, n, residuals_.data(), residuals, effort, out);
  }

  const std::vector<std::uint32_t> counts =
      group_differences<T>(plan, values.data(), base.data(), n, residuals_.data());
  std::byte* differences = residuals_.data();
  for (std::size_t g = 0; g < counts.size(); ++g) {
    const GroupPlan& group = plan.groups[g];
    set_count(out, head_at, g, counts[g]);
    const auto residuals = [&](std::size_t first, std::size_t count, std::byte* to) {
      move_to_center(group, differences + first * sizeof(T), count, to);
    };
    // What is kept of a sparse group never passes what of it has been read.
    encode_group<T>(group.form, counts[g], differences, residuals, effort, out);
    differences += counts[g] * sizeof(T) + move_slack;
  }
}

void TypedEncoder::encode(const TypedPlan& plan, ByteView raw, ByteView base, Effort effort, Bytes& out) {
  const std::size_t head_at = out.size();
  append_head(plan, out);
  const std::size_t size = (raw.size() - plan.lead) / plan.element.width * plan.element.width;
  const ByteView values = raw.subspan(plan.lead, size);
  append(out, raw.first(plan.lead));
  append(out, raw.subspan(plan.lead + size));
  base = predictions(plan, base, size, rounded_);
  switch (plan.element.width) {
    case 1: return encode_elements<std::uint8_t>(plan, head_at, values, base, effort, out);
    case 2: return encode_elements<std::uint16_t>(plan, head_at, values, base, effort, out);
    case 4: return encode_elements<std::uint32_t>(plan, head_at, values, base, effort, out);
    case 8: return encode_elements<std::uint64_t>(plan, head_at, values, base, effort, out);
    default: throw std::logic_error("an element of impossible width");
  }
}

}  // namespace ckpt::codec
