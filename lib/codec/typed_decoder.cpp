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

  /// If the next `n` residuals are all zero and that's easily seen, goes past them.
  [[nodiscard]] bool skip_zeros(std::size_t n) {
    if (plan_.form != GroupForm::sparse || plan_.center != 0) return false;
    const ByteView bits = bitmap_.subspan(bits_at_ / 8, (n + 7) / 8);
    if (kernels().count_bits(bits.data(), bits.size()) != 0) return false;
    bits_at_ += n;
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
    const std::size_t count = kernels().count_bits(bits.data(), bits.size());
    if (count == 0) {
      std::memset(out, 0, n * sizeof(T));
      return;
    }
    alignas(64) std::array<std::byte, chunk_elements * sizeof(T) + move_slack> values;
    join(count, values.data());
    kernels().of<T>().spread_nonzero(bits.data(), values.data(), n, out);
  }

  GroupPlan plan_;
  std::array<const std::byte*, sizeof(T)> planes_;  ///< what is left of them
  ByteView bitmap_;
  std::size_t bits_at_ = 0;
};

/// The residuals of all groups, each group's a little ahead of where it's read.
template <class T>
class TypedDecoder::GroupsAhead {
 public:
  /// Bytes at `room` for `groups` of them. A forged count lets take() read a chunk more than there is.
  static constexpr std::size_t room_each = 3 * chunk_elements * sizeof(T) + move_slack;

  /// Takes the streams of all groups as GroupReader::open() does.
  [[nodiscard]] bool open(const TypedHead& head, StreamDecoder& streams, ByteReader& in, std::byte* scratch,
                          std::byte* room) {
    for (std::size_t g = 0; g < head.counts.size(); ++g) {
      if (!readers_[g].open(head.plan.groups[g], head.counts[g], streams, in, scratch)) return false;
      left_[g] = head.counts[g];
      room_[g] = room + g * room_each;
      begins_[g] = room_[g];
      ends_[g] = room_[g];
    }
    return true;
  }

  /// The residuals of the next elements, which have these bases, at most a chunk. False if a group hasn't got as many.
  [[nodiscard]] bool take(const std::byte* base, std::size_t n, const KeyGroups& groups, std::byte* out) {
    for (std::size_t g = 0; g < groups.count(); ++g) refill(g);
    kernels().of<T>().gather(begins_.data(), base, n, groups, out);
    bool sound = true;
    for (std::size_t g = 0; g < groups.count(); ++g) sound = sound && begins_[g] <= ends_[g];
    return sound;
  }

 private:
  void refill(std::size_t g) {
    const auto held = static_cast<std::size_t>(ends_[g] - begins_[g]);
    if (held >= chunk_elements * sizeof(T) || left_[g] == 0) return;
    std::memmove(room_[g], begins_[g], held);
    const std::size_t n = std::min(left_[g], chunk_elements);
    readers_[g].next(n, room_[g] + held);
    left_[g] -= n;
    begins_[g] = room_[g];
    ends_[g] = room_[g] + held + n * sizeof(T);
  }

  std::array<GroupReader<T>, max_groups> readers_;
  std::array<std::size_t, max_groups> left_;  ///< elements that are still to be read
  std::array<std::byte*, max_groups> room_;
  std::array<const std::byte*, max_groups> begins_;
  std::array<const std::byte*, max_groups> ends_;
};

template <class T>
bool TypedDecoder::decode_elements(const TypedHead& head, ByteReader& in, ByteView base, Target& target) {
  const Kernels<T>& k = kernels().of<T>();
  const TypedPlan& plan = head.plan;
  const std::size_t n = (target.size() - plan.lead) / sizeof(T);
  // All planes, and the bits of sparse groups.
  planes_.reserve(sizeof(T) * n + n / 8 + plan.groups.size());
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
    const auto put_base = [&](std::size_t first, std::size_t count) {
      const std::byte* const same = base.data() + first * sizeof(T);
      return target.put(plan.lead + first * sizeof(T), count * sizeof(T), [&](std::byte* out) {
        if (out != same) std::memcpy(out, same, count * sizeof(T));
      });
    };
    for_each_chunk(n, [&](std::size_t first, std::size_t count) {
      if (!sound) return;
      if (!base.empty() && group.skip_zeros(count)) {
        sound = put_base(first, count);
        return;
      }
      group.next(count, residuals.data());
      sound = put(residuals.data(), first, count);
    });
    return sound;
  }

  residuals_.reserve(plan.groups.size() * GroupsAhead<T>::room_each);
  GroupsAhead<T> ahead;
  if (!ahead.open(head, streams_, in, scratch, residuals_.data())) return false;
  const KeyGroups groups = key_groups(plan.groups);
  for_each_chunk(n, [&](std::size_t first, std::size_t count) {
    sound = sound && ahead.take(base.data() + first * sizeof(T), count, groups, residuals.data()) &&
            put(residuals.data(), first, count);
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
