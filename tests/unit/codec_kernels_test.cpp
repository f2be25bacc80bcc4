// SPDX-License-Identifier: Apache-2.0
// Each instruction set's kernels against the plain ones, and the plain ones against what they're meant to be.
#include "codec/kernels.hpp"
#include "codec_support.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <array>

using namespace ckpt;
using namespace ckpt::codec;
using codec_test::noise;
using codec_test::patterns;

namespace {

constexpr std::array counts = {0, 1, 2, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 1000, 8192};

std::vector<const KernelSet*> other_sets() {
  std::vector<const KernelSet*> sets;
  for (const InstructionSet set : {InstructionSet::avx2, InstructionSet::avx512}) {
    if (const KernelSet* found = kernels_for(set)) sets.push_back(found);
  }
  return sets;
}

/// Input at an odd address: nothing says that tensors are aligned.
struct Unaligned {
  explicit Unaligned(const Bytes& bytes) : held(bytes.size() + 1) {
    if (!bytes.empty()) std::memcpy(held.data() + 1, bytes.data(), bytes.size());
  }
  [[nodiscard]] const std::byte* data() const { return held.data() + 1; }
  Bytes held;
};

template <class T>
void compare_all(const KernelSet& plain_set, const KernelSet& set) {
  std::mt19937_64 rng(sizeof(T));
  const Kernels<T>& plain = plain_set.of<T>();
  const Kernels<T>& fast = set.of<T>();
  for (const int signed_count : counts) {
    const auto n = static_cast<std::size_t>(signed_count);
    const Unaligned a(patterns<T>(rng, n));
    const Unaligned b(patterns<T>(rng, n));
    const auto center = static_cast<T>(rng());
    Bytes want(n * sizeof(T)), got(n * sizeof(T));
    const auto same = [&](const char* what) {
      INFO(what, " n=", n, " width=", sizeof(T));
      CHECK(want == got);
    };
    plain.rotate_left(a.data(), n, want.data()), fast.rotate_left(a.data(), n, got.data()), same("rotate_left");
    plain.rotate_right(a.data(), n, want.data()), fast.rotate_right(a.data(), n, got.data()), same("rotate_right");
    for (const NumberKind kind : {NumberKind::integer, NumberKind::floating}) {
      plain.difference(a.data(), b.data(), kind, n, want.data());
      fast.difference(a.data(), b.data(), kind, n, got.data()), same("difference");
      plain.add(a.data(), b.data(), kind, n, want.data()), fast.add(a.data(), b.data(), kind, n, got.data()),
          same("add");
    }
    plain.exclusive_or(a.data(), b.data(), n, want.data()), fast.exclusive_or(a.data(), b.data(), n, got.data());
    same("exclusive_or");
    plain.zigzag(a.data(), center, n, want.data()), fast.zigzag(a.data(), center, n, got.data()), same("zigzag");
    plain.unzigzag(a.data(), center, n, want.data()), fast.unzigzag(a.data(), center, n, got.data()), same("unzigzag");
    plain.recenter(a.data(), center, n, want.data()), fast.recenter(a.data(), center, n, got.data()), same("recenter");
    std::vector<std::uint8_t> keys(n), fast_keys(n);
    plain.keys(a.data(), n, keys.data()), fast.keys(a.data(), n, fast_keys.data());
    CHECK(keys == fast_keys);
    Bytes want_planes(n * sizeof(T)), got_planes(n * sizeof(T));
    const auto planes_of = [n](Bytes& bytes) {
      std::array<std::byte*, sizeof(T)> planes;
      for (std::size_t p = 0; p < planes.size(); ++p) planes[p] = bytes.data() + p * n;
      return planes;
    };
    plain.split(a.data(), n, planes_of(want_planes).data()), fast.split(a.data(), n, planes_of(got_planes).data());
    CHECK(want_planes == got_planes);
    plain.join(planes_of(want_planes).data(), n, want.data()), fast.join(planes_of(want_planes).data(), n, got.data());
    same("join");
    CHECK(std::equal(got.begin(), got.end(), a.data()));
  }
}

KeyGroups random_groups(std::mt19937_64& rng) {
  std::vector<std::uint8_t> last_keys = {255};
  for (std::size_t more = rng() % max_groups; more > 0; --more) {
    last_keys.push_back(static_cast<std::uint8_t>(rng()));
    if (rng() % 2 == 0) last_keys.push_back(static_cast<std::uint8_t>(254 - rng() % 4));
  }
  std::sort(last_keys.begin(), last_keys.end());
  last_keys.erase(std::unique(last_keys.begin(), last_keys.end()), last_keys.end());
  if (last_keys.size() > max_groups) last_keys.erase(last_keys.begin(), last_keys.end() - max_groups);
  return KeyGroups(last_keys);
}

/// What one set makes of a group's elements, with room for what's written behind them.
template <class T>
struct Grouped {
  Grouped(const Kernels<T>& k, const std::byte* values, const std::byte* base, std::size_t n, const KeyGroups& groups)
      : counts(groups.count()), sorted(n * sizeof(T) + groups.count() * move_slack), back(n * sizeof(T)) {
    k.count_members(base, n, groups, counts.data());
    std::array<std::byte*, max_groups> begins{};
    std::byte* at = sorted.data();
    for (std::size_t g = 0; g < counts.size(); ++g) {
      begins[g] = at;
      at += counts[g] * sizeof(T) + move_slack;
    }
    auto ends = begins;
    k.scatter(values, base, n, groups, ends.data());
    std::array<const std::byte*, max_groups> taken{};
    std::copy(begins.begin(), begins.end(), taken.begin());
    k.gather(taken.data(), base, n, groups, back.data());
    for (std::size_t g = 0; g < counts.size(); ++g) {
      const std::size_t size = counts[g] * sizeof(T);
      CHECK(static_cast<std::size_t>(ends[g] - begins[g]) == size);
      CHECK(static_cast<std::size_t>(taken[g] - begins[g]) == size);
      members.emplace_back(begins[g], begins[g] + size);
    }
  }
  std::vector<std::uint32_t> counts;
  Bytes sorted, back;
  std::vector<Bytes> members;
};

template <class T>
void compare_moves(const KernelSet& plain_set, const KernelSet& set, std::mt19937_64& rng) {
  const Kernels<T>& plain = plain_set.of<T>();
  const Kernels<T>& fast = set.of<T>();
  for (const int signed_count : counts) {
    const auto n = static_cast<std::size_t>(signed_count);
    INFO("n=", n, " width=", sizeof(T));
    const Bytes values = patterns<T>(rng, n);
    const Unaligned base(patterns<T>(rng, n));
    const KeyGroups groups = random_groups(rng);
    const Grouped<T> want(plain, values.data(), base.data(), n, groups);
    const Grouped<T> got(fast, values.data(), base.data(), n, groups);
    CHECK(want.members == got.members);
    CHECK(want.back == values);
    CHECK(got.back == values);

    Bytes want_bits((n + 7) / 8), got_bits((n + 7) / 8), want_kept(n * sizeof(T)), got_kept(n * sizeof(T));
    const std::size_t kept = plain.pack_nonzero(values.data(), n, want_kept.data(), want_bits.data());
    CHECK(kept == fast.pack_nonzero(values.data(), n, got_kept.data(), got_bits.data()));
    want_kept.resize(kept * sizeof(T)), got_kept.resize(kept * sizeof(T));
    CHECK(want_kept == got_kept);
    CHECK(want_bits == got_bits);
    CHECK(plain_set.count_bits(want_bits.data(), want_bits.size()) == kept);
    CHECK(set.count_bits(want_bits.data(), want_bits.size()) == kept);
    want_kept.resize(want_kept.size() + move_slack);
    for (const Kernels<T>* k : {&plain, &fast}) {
      Bytes back(n * sizeof(T));
      k->spread_nonzero(want_bits.data(), want_kept.data(), n, back.data());
      CHECK(back == values);
    }
  }
}

template <class T>
void check_inverses() {
  std::mt19937_64 rng(7);
  const Kernels<T>& k = kernels_for(InstructionSet::plain)->of<T>();
  constexpr std::size_t n = 500;
  const Bytes a = patterns<T>(rng, n);
  const Bytes b = patterns<T>(rng, n);
  Bytes there(a.size()), back(a.size());
  k.rotate_left(a.data(), n, there.data()), k.rotate_right(there.data(), n, back.data());
  CHECK(back == a);
  for (const NumberKind kind : {NumberKind::integer, NumberKind::floating}) {
    k.difference(a.data(), b.data(), kind, n, there.data()), k.add(there.data(), b.data(), kind, n, back.data());
    CHECK(back == a);
  }
  std::array<Bytes, sizeof(T)> held;
  std::array<std::byte*, sizeof(T)> planes;
  for (std::size_t p = 0; p < sizeof(T); ++p) {
    held[p].resize(n);
    planes[p] = held[p].data();
  }
  k.split(a.data(), n, planes.data()), k.join(planes.data(), n, back.data());
  CHECK(back == a);
  for (std::size_t p = 0; p < sizeof(T); ++p) CHECK(held[p][1] == a[sizeof(T) + p]);
  k.zigzag(a.data(), static_cast<T>(77), n, there.data()), k.unzigzag(there.data(), static_cast<T>(77), n, back.data());
  CHECK(back == a);
}

template <class T>
T load(const Bytes& bytes, std::size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

}  // namespace

TEST_SUITE("codec kernels") {
  TEST_CASE("every instruction set gives what plain code gives") {
    for (const KernelSet* set : other_sets()) {
      const KernelSet& plain = *kernels_for(InstructionSet::plain);
      compare_all<std::uint8_t>(plain, *set);
      compare_all<std::uint16_t>(plain, *set);
      compare_all<std::uint32_t>(plain, *set);
      compare_all<std::uint64_t>(plain, *set);
    }
  }

  TEST_CASE("every instruction set moves elements as plain code does, and back") {
    const KernelSet& plain = *kernels_for(InstructionSet::plain);
    std::vector<const KernelSet*> sets = other_sets();
    sets.push_back(&plain);
    for (const KernelSet* set : sets) {
      std::mt19937_64 rng(9);
      for (int round = 0; round < 20; ++round) {
        compare_moves<std::uint8_t>(plain, *set, rng);
        compare_moves<std::uint16_t>(plain, *set, rng);
        compare_moves<std::uint32_t>(plain, *set, rng);
        compare_moves<std::uint64_t>(plain, *set, rng);
      }
    }
  }

  TEST_CASE("what is undone is what was done, for every bit pattern") {
    check_inverses<std::uint8_t>();
    check_inverses<std::uint16_t>();
    check_inverses<std::uint32_t>();
    check_inverses<std::uint64_t>();
  }

  TEST_CASE("neighbouring numbers differ by one, across zero as well") {
    const Kernels<std::uint32_t>& k = kernels_for(InstructionSet::plain)->u32;
    const std::vector<float> numbers = {-1.0F, std::nextafter(-1.0F, 0.0F), -0.0F,
                                        0.0F,  std::nextafter(0.0F, 1.0F),  1.0F};
    const Bytes bytes = codec_test::bytes_of(numbers);
    Bytes steps(bytes.size() - 4);
    k.difference(bytes.data() + 4, bytes.data(), NumberKind::floating, numbers.size() - 1, steps.data());
    CHECK(load<std::uint32_t>(steps, 0) == 1);
    CHECK(load<std::uint32_t>(steps, 2) == 1);
    CHECK(load<std::uint32_t>(steps, 3) == 1);
  }

  TEST_CASE("zigzag makes small numbers of small differences") {
    const Kernels<std::uint16_t>& k = kernels_for(InstructionSet::plain)->u16;
    const std::vector<std::uint16_t> in = {10, 9, 11, 8, 12};
    Bytes out(in.size() * 2);
    k.zigzag(codec_test::bytes_of(in).data(), 10, in.size(), out.data());
    for (std::uint16_t i = 0; i < 5; ++i) CHECK(load<std::uint16_t>(out, i) == i);
  }

  TEST_CASE("float32 is rounded to bfloat16 and float16 to nearest, ties to even") {
    const std::vector<std::uint32_t> in = {0x3f800000, 0x3f808000, 0x3f818000, 0x3f808001, 0x7f800000, 0xff800000,
                                           0x00000001, 0x80000000, 0x477fefff, 0x477ff000, 0x33000000, 0x33000001,
                                           0x38800000, 0x387fffff, 0x3f801000, 0x3f803000, 0x33c00000};
    const std::vector<std::uint16_t> bfloat16 = {0x3f80, 0x3f80, 0x3f82, 0x3f81, 0x7f80, 0xff80, 0x0000, 0x8000, 0x4780,
                                                 0x4780, 0x3300, 0x3300, 0x3880, 0x3880, 0x3f80, 0x3f80, 0x33c0};
    const std::vector<std::uint16_t> float16 = {0x3c00, 0x3c04, 0x3c0c, 0x3c04, 0x7c00, 0xfc00, 0x0000, 0x8000, 0x7bff,
                                                0x7c00, 0x0000, 0x0001, 0x0400, 0x0400, 0x3c00, 0x3c02, 0x0002};
    for (const InstructionSet set : {InstructionSet::plain, InstructionSet::avx2, InstructionSet::avx512}) {
      const KernelSet* found = kernels_for(set);
      if (found == nullptr) continue;
      Bytes out(in.size() * 2);
      found->round.to_bfloat16(codec_test::bytes_of(in).data(), in.size(), out.data());
      CHECK(out == codec_test::bytes_of(bfloat16));
      found->round.to_float16(codec_test::bytes_of(in).data(), in.size(), out.data());
      CHECK(out == codec_test::bytes_of(float16));
    }
  }

  TEST_CASE("every instruction set rounds as plain code does") {
    std::mt19937_64 rng(3);
    for (const KernelSet* set : other_sets()) {
      const Bytes in = patterns<std::uint32_t>(rng, 20000);
      Bytes want(40000), got(40000);
      kernels_for(InstructionSet::plain)->round.to_bfloat16(in.data(), 20000, want.data());
      set->round.to_bfloat16(in.data(), 20000, got.data());
      CHECK(want == got);
      kernels_for(InstructionSet::plain)->round.to_float16(in.data(), 20000, want.data());
      set->round.to_float16(in.data(), 20000, got.data());
      CHECK(want == got);
    }
  }
}
