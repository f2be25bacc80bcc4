// SPDX-License-Identifier: Apache-2.0
// Payloads are untrusted: every stream must have the size that the head leads to, and the last check is the block's
// hash, which the caller takes.
#include "codec/kernels.hpp"
#include "codec/typed_block.hpp"
#include "codec/typed_format.hpp"

#include <array>
#include <bit>
#include <cstring>

namespace ckpt::codec {
/// Where the bytes of a block go: to memory, or to where they're compared with what they should be.
class TypedDecoder::Target {
 public:
  explicit Target(std::span<std::byte> raw) : into_(raw.data()), size_(raw.size()) {}
  explicit Target(ByteView expected) : expected_(expected.data()), size_(expected.size()) {}

  [[nodiscard]] std::size_t size() const { return size_; }

  /// fill(out) writes `size` bytes, at most those of a chunk, that belong at `at`. False if other ones are expected.
  template <class Fill>
  [[nodiscard]] bool put(std::size_t at, std::size_t size, Fill&& fill) {
    fill(expected_ == nullptr ? into_ + at : piece_.data());
    return expected_ == nullptr || size == 0 || std::memcmp(piece_.data(), expected_ + at, size) == 0;
  }

 private:
  std::byte* into_ = nullptr;
  const std::byte* expected_ = nullptr;
  std::size_t size_;
  alignas(64) std::array<std::byte, chunk_elements * sizeof(std::uint64_t)> piece_;
};

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
      elements = kernels().count_bits(bitmap_.data(), bitmap_.size());
      if (count % 8 != 0 && std::to_integer<unsigned>(bitmap_.back()) >> count % 8 != 0) return false;
    }
    for (const std::byte*& plane : planes_) {
      ByteView bytes;
      if (!take(elements, bytes)) return false;
      plane = bytes.data();
    }
    return true;
  }

  /// The next `n` residuals; all calls but the last take a multiple of eight, at most a chunk.
  void next(std::size_t n, std::byte* out) {
    if (plan_.form == GroupForm::planes) {
      join(n, out);
    } else {
      spread(n, out);
    }
    const Kernels<T>& k = kernels().of<T>();
    if (plan_.sign == Sign::folded) {
      k.unzigzag(out, static_cast<T>(plan_.center), n, out);
    } else if (plan_.center != 0) {
      k.recenter(out, static_cast<T>(-plan_.center), n, out);
    }
  }

 private:
  void join(std::size_t n, std::byte* out) {
    kernels().of<T>().join(planes_.data(), n, out);
    for (const std::byte*& plane : planes_) plane += n;
  }

  void spread(std::size_t n, std::byte* out) {
    const ByteView bits = bitmap_.subspan(bits_at_ / 8, (n + 7) / 8);
    bits_at_ += n;
    alignas(64) std::array<std::byte, chunk_elements * sizeof(T) + move_slack> values;
    join(kernels().count_bits(bits.data(), bits.size()), values.data());
    kernels().of<T>().spread_nonzero(bits.data(), values.data(), n, out);
  }

  GroupPlan plan_;
  std::array<const std::byte*, sizeof(T)> planes_;  ///< what is left of them
  ByteView bitmap_;
  std::size_t bits_at_ = 0;
};

template <class T>
bool TypedDecoder::decode_elements(const TypedHead& head, ByteReader& in, ByteView base, Target& target) {
  const Kernels<T>& k = kernels().of<T>();
  const TypedPlan& plan = head.plan;
  const std::size_t n = (target.size() - plan.lead) / sizeof(T);
  // All planes, and the bits of a sparse group.
  planes_.reserve(sizeof(T) * n + n / 8 + 1);
  std::byte* scratch = planes_.data();
  alignas(64) std::array<std::byte, chunk_elements * sizeof(T)> residuals;
  bool sound = true;

  const auto put = [&](const std::byte* residual, std::size_t first, std::size_t count) {
    const std::byte* const against = base.empty() ? nullptr : base.data() + first * sizeof(T);
    return target.put(plan.lead + first * sizeof(T), count * sizeof(T), [&](std::byte* out) {
      switch (plan.predictor) {
        case Predictor::none:
          if (plan.element.kind == NumberKind::floating)
            k.rotate_right(residual, count, out);
          else
            std::memcpy(out, residual, count * sizeof(T));
          return;
        case Predictor::subtract: return k.add(residual, against, plan.element.kind, count, out);
        case Predictor::exclusive_or: return k.exclusive_or(residual, against, count, out);
      }
    });
  };

  if (plan.groups.size() == 1) {
    GroupReader<T> group;
    if (!group.open(plan.groups[0], n, streams_, in, scratch)) return false;
    for_each_chunk(n, [&](std::size_t first, std::size_t count) {
      if (!sound) return;
      group.next(count, residuals.data());
      sound = put(residuals.data(), first, count);
    });
    return sound;
  }

  // A forged count lets gather() run into the next group's residuals, by a chunk at most.
  residuals_.reserve((n + chunk_elements) * sizeof(T) + plan.groups.size() * move_slack);
  std::array<const std::byte*, max_groups> begins{};
  std::array<const std::byte*, max_groups> ends{};
  std::byte* to = residuals_.data();
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    GroupReader<T> group;
    scratch = planes_.data();
    if (!group.open(plan.groups[g], head.counts[g], streams_, in, scratch)) return false;
    begins[g] = to;
    for_each_chunk(head.counts[g], [&](std::size_t, std::size_t count) {
      group.next(count, to);
      to += count * sizeof(T);
    });
    ends[g] = to;
    to += move_slack;
  }
  const KeyGroups groups = key_groups(plan.groups);
  for_each_chunk(n, [&](std::size_t first, std::size_t count) {
    if (!sound) return;
    k.gather(begins.data(), base.data() + first * sizeof(T), count, groups, residuals.data());
    for (std::size_t g = 0; g < groups.count(); ++g) sound = sound && begins[g] <= ends[g];
    sound = sound && put(residuals.data(), first, count);
  });
  return sound;
}

bool TypedDecoder::decode_any(ByteView payload, ByteView base, bool derived, Target& target) {
  ByteReader in(payload);
  const auto head = take_head(in, target.size());
  if (!head) return false;
  const TypedPlan& plan = head->plan;
  if (derived != (plan.rounding != Rounding::none)) return false;
  if ((plan.predictor == Predictor::none) != base.empty()) return false;
  const auto needs_subtraction = [](const GroupPlan& group) { return group.sign != Sign::kept || group.center != 0; };
  if (plan.predictor != Predictor::subtract && (plan.groups.size() > 1 || needs_subtraction(plan.groups.front()))) {
    return false;
  }
  if (derived && (plan.element.width != 2 || plan.lead != 0 || target.size() % 2 != 0)) return false;

  const std::size_t size = (target.size() - plan.lead) / plan.element.width * plan.element.width;
  const std::size_t tail = target.size() - plan.lead - size;
  const auto edges = in.take(plan.lead + tail);
  if (!edges) return false;
  const auto put_edge = [&](std::size_t at, ByteView edge) {
    return target.put(at, edge.size(), [&](std::byte* out) { std::copy(edge.begin(), edge.end(), out); });
  };
  if (!put_edge(0, edges->first(plan.lead)) || !put_edge(plan.lead + size, edges->last(tail))) return false;
  base = predictions(plan, base, size, rounded_);
  const auto decode_as = [&]<class T>(T) { return decode_elements<T>(*head, in, base, target); };
  const bool sound = plan.element.width == 1   ? decode_as(std::uint8_t{})
                     : plan.element.width == 2 ? decode_as(std::uint16_t{})
                     : plan.element.width == 4 ? decode_as(std::uint32_t{})
                                               : decode_as(std::uint64_t{});
  return sound && in.remaining() == 0;
}

bool TypedDecoder::decode(ByteView payload, ByteView base, std::span<std::byte> raw) {
  Target target(raw);
  return (base.empty() || base.size() == raw.size()) && decode_any(payload, base, false, target);
}

bool TypedDecoder::decode_derived(ByteView payload, ByteView base, std::span<std::byte> raw) {
  Target target(raw);
  return base.size() == 2 * raw.size() && decode_any(payload, base, true, target);
}

bool TypedDecoder::decodes_to(ByteView raw, ByteView payload, ByteView base) {
  Target target(raw);
  return (base.empty() || base.size() == raw.size()) && decode_any(payload, base, false, target);
}

bool TypedDecoder::derived_decodes_to(ByteView raw, ByteView payload, ByteView base) {
  Target target(raw);
  return base.size() == 2 * raw.size() && decode_any(payload, base, true, target);
}

}  // namespace ckpt::codec
