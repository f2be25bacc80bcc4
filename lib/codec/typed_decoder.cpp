// SPDX-License-Identifier: Apache-2.0
// Payloads are untrusted: every stream must have the size that the head leads to, and the last check is the block's
// hash, which the caller takes.
#include "codec/kernels.hpp"
#include "codec/partition.hpp"
#include "codec/typed_block.hpp"
#include "codec/typed_format.hpp"

#include <array>
#include <bit>
#include <cstring>

namespace ckpt::codec {
namespace {

const std::uint8_t* as_u8(const std::byte* p) { return reinterpret_cast<const std::uint8_t*>(p); }

std::size_t count_bits(ByteView bits) {
  std::size_t count = 0;
  for (const std::byte b : bits) count += static_cast<std::size_t>(std::popcount(std::to_integer<unsigned>(b)));
  return count;
}

}  // namespace

/// Gives the residuals of one group in order, a few at a time.
template <class T>
class TypedDecoder::GroupReader {
 public:
  /// Takes the group's streams from `in`; decoded ones are put at `scratch`, which moves on. False if they don't fit.
  [[nodiscard]] bool open(const GroupPlan& plan, std::size_t count, StreamDecoder& streams, ByteReader& in,
                          std::byte*& scratch) {
    plan_ = plan;
    std::size_t elements = count;
    const auto take = [&](std::size_t size, ByteView& into) {
      if (size == 0) return streams.decode(in, {});
      into = streams.view(in, size, scratch);
      if (into.data() == scratch) scratch += size;
      return !into.empty();
    };
    if (plan.form == GroupForm::sparse) {
      if (!take((count + 7) / 8, bitmap_)) return false;
      elements = count_bits(bitmap_);
      if (elements > count) return false;
    }
    for (ByteView& plane : planes_) {
      if (!take(elements, plane)) return false;
    }
    values_left_ = elements;
    return true;
  }

  /// The next `n` residuals; all calls but the last take a multiple of eight, at most a chunk. False if a sparse
  /// group's bits claim more than there are.
  [[nodiscard]] bool next(std::size_t n, std::byte* out) {
    if (plan_.form == GroupForm::planes) {
      join(n, out);
    } else if (!spread(n, out)) {
      return false;
    }
    const Kernels<T>& k = kernels().of<T>();
    if (plan_.sign == Sign::folded) {
      k.unzigzag(out, static_cast<T>(plan_.center), n, out);
    } else if (plan_.center != 0) {
      k.recenter(out, static_cast<T>(-plan_.center), n, out);
    }
    return true;
  }

 private:
  void join(std::size_t n, std::byte* out) {
    const Kernels<T>& k = kernels().of<T>();
    k.place(as_u8(planes_[0].data()) + at_, 0, n, out);
    for (unsigned p = 1; p < sizeof(T); ++p) k.place_beside(as_u8(planes_[p].data()) + at_, p * 8, n, out);
    at_ += n;
    values_left_ -= n;
  }

  bool spread(std::size_t n, std::byte* out) {
    const ByteView bits = bitmap_.subspan(bits_at_ / 8, (n + 7) / 8);
    bits_at_ += n;
    const std::size_t count = count_bits(bits);
    if (count > n || count > values_left_) return false;
    alignas(64) std::array<std::byte, chunk_elements * sizeof(T)> values;
    if (count > 0) join(count, values.data());
    std::memset(out, 0, n * sizeof(T));
    std::size_t taken = 0;
    for (std::size_t b = 0; b < bits.size(); ++b) {
      for (auto left = std::to_integer<unsigned>(bits[b]); left != 0; left &= left - 1) {
        const std::size_t i = b * 8 + static_cast<unsigned>(std::countr_zero(left));
        if (i >= n) return false;
        std::memcpy(out + i * sizeof(T), values.data() + taken++ * sizeof(T), sizeof(T));
      }
    }
    return true;
  }

  GroupPlan plan_;
  std::array<ByteView, sizeof(T)> planes_;
  ByteView bitmap_;
  std::size_t bits_at_ = 0;
  std::size_t at_ = 0;
  std::size_t values_left_ = 0;
};

template <class T>
bool TypedDecoder::decode_elements(const TypedHead& head, ByteReader& in, ByteView base, std::span<std::byte> values) {
  const Kernels<T>& k = kernels().of<T>();
  const TypedPlan& plan = head.plan;
  const std::size_t n = values.size() / sizeof(T);
  // All planes, and the bits of a sparse group.
  planes_.reserve(sizeof(T) * n + n / 8 + 1);
  std::byte* scratch = planes_.data();
  alignas(64) std::array<std::byte, chunk_elements * sizeof(T)> residuals;
  bool sound = true;

  const auto put = [&](const std::byte* residual, std::size_t first, std::size_t count) {
    const std::size_t at = first * sizeof(T);
    std::byte* const out = values.data() + at;
    switch (plan.predictor) {
      case Predictor::none:
        if (plan.element.kind == NumberKind::floating)
          k.rotate_right(residual, count, out);
        else
          std::memcpy(out, residual, count * sizeof(T));
        return;
      case Predictor::subtract: return k.add(residual, base.data() + at, plan.element.kind, count, out);
      case Predictor::exclusive_or: return k.exclusive_or(residual, base.data() + at, count, out);
    }
  };

  if (plan.groups.size() == 1) {
    GroupReader<T> group;
    if (!group.open(plan.groups[0], n, streams_, in, scratch)) return false;
    for_each_chunk(n, [&](std::size_t first, std::size_t count) {
      sound = sound && group.next(count, residuals.data());
      if (sound) put(residuals.data(), first, count);
    });
    return sound;
  }

  keys_.reserve(n);
  auto* const keys = reinterpret_cast<std::uint8_t*>(keys_.data());
  Partition partition(plan.groups, {keys, n}, [&](std::size_t first, std::size_t count, std::uint8_t* to_keys) {
    k.keys(base.data() + first * sizeof(T), count, to_keys);
  });
  if (partition.counts() != head.counts) return false;
  residuals_.reserve(n * sizeof(T));
  std::byte* to = residuals_.data();
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    GroupReader<T> group;
    scratch = planes_.data();
    if (!group.open(plan.groups[g], head.counts[g], streams_, in, scratch)) return false;
    for_each_chunk(head.counts[g], [&](std::size_t, std::size_t count) {
      sound = sound && group.next(count, to);
      to += count * sizeof(T);
    });
    if (!sound) return false;
  }
  alignas(64) std::array<std::array<std::byte, Partition::step * sizeof(T)>, Partition::lanes> gathered;
  for (std::size_t at = 0; at < partition.lane_size(); at += Partition::step) {
    partition.gather<T>(at, residuals_.data(), gathered);
    for (std::size_t l = 0; l < Partition::lanes; ++l) {
      const auto [first, count] = partition.range(l, at);
      put(gathered[l].data(), first, count);
    }
  }
  return true;
}

bool TypedDecoder::decode_any(ByteView payload, ByteView base, bool derived, std::span<std::byte> raw) {
  ByteReader in(payload);
  const auto head = take_head(in, raw.size());
  if (!head) return false;
  const TypedPlan& plan = head->plan;
  if (derived != (plan.rounding != Rounding::none)) return false;
  if ((plan.predictor == Predictor::none) != base.empty()) return false;
  const auto needs_subtraction = [](const GroupPlan& group) { return group.sign != Sign::kept || group.center != 0; };
  if (plan.predictor != Predictor::subtract && (plan.groups.size() > 1 || needs_subtraction(plan.groups.front()))) {
    return false;
  }
  if (derived && (plan.element.width != 2 || plan.lead != 0 || raw.size() % 2 != 0)) return false;

  const std::size_t size = (raw.size() - plan.lead) / plan.element.width * plan.element.width;
  const std::size_t tail = raw.size() - plan.lead - size;
  const auto edges = in.take(plan.lead + tail);
  if (!edges) return false;
  std::copy_n(edges->begin(), plan.lead, raw.begin());
  std::copy_n(edges->begin() + plan.lead, tail, raw.end() - static_cast<std::ptrdiff_t>(tail));
  const std::span<std::byte> values = raw.subspan(plan.lead, size);
  if (derived) {
    rounded_.reserve(size);
    const auto& round = kernels().round;
    const auto kernel = plan.rounding == Rounding::to_bfloat16 ? round.to_bfloat16 : round.to_float16;
    kernel(base.data(), size / 2, rounded_.data());
    base = {rounded_.data(), size};
  } else if (!base.empty()) {
    base = base.subspan(plan.lead, size);
  }
  const auto decode_as = [&]<class T>(T) { return decode_elements<T>(*head, in, base, values); };
  const bool sound = plan.element.width == 1   ? decode_as(std::uint8_t{})
                     : plan.element.width == 2 ? decode_as(std::uint16_t{})
                     : plan.element.width == 4 ? decode_as(std::uint32_t{})
                                               : decode_as(std::uint64_t{});
  return sound && in.remaining() == 0;
}

bool TypedDecoder::decode(ByteView payload, ByteView base, std::span<std::byte> raw) {
  return (base.empty() || base.size() == raw.size()) && decode_any(payload, base, false, raw);
}

bool TypedDecoder::decode_derived(ByteView payload, ByteView base, std::span<std::byte> raw) {
  return base.size() == 2 * raw.size() && decode_any(payload, base, true, raw);
}

}  // namespace ckpt::codec
