// SPDX-License-Identifier: Apache-2.0
// Typed blocks: whatever the plan is and whatever the bytes are, they come back; and no payload, however forged, does
// harm.
#include "codec/byte_histogram.hpp"
#include "codec/typed_block.hpp"
#include "codec_support.hpp"

#include <doctest/doctest.h>
#include <algorithm>

using namespace ckpt;
using namespace ckpt::codec;
using codec_test::noise;

namespace {

Bytes encoded(const TypedPlan& plan, ByteView raw, ByteView base, Effort effort = Effort::fast) {
  TypedEncoder encoder;
  Bytes out;
  encoder.encode(plan, raw, base, effort, out);
  return out;
}

bool comes_back(const TypedPlan& plan, const Bytes& raw, const Bytes& base, Effort effort = Effort::fast) {
  const Bytes payload = encoded(plan, raw, base, effort);
  TypedDecoder decoder;
  Bytes out(raw.size());
  const bool decoded =
      plan.rounding == Rounding::none ? decoder.decode(payload, base, out) : decoder.decode_derived(payload, base, out);
  Bytes other = raw;
  other[other.size() / 3] ^= std::byte{4};
  const auto decodes_to = [&](ByteView expected) {
    return plan.rounding == Rounding::none ? decoder.decodes_to(expected, payload, base)
                                           : decoder.derived_decodes_to(expected, payload, base);
  };
  return decoded && out == raw && decodes_to(raw) && !decodes_to(other);
}

TypedPlan random_plan(std::mt19937_64& rng, bool has_base) {
  constexpr std::array<std::uint8_t, 4> widths = {1, 2, 4, 8};
  TypedPlan plan;
  plan.element.width = widths[rng() % 4];
  plan.element.kind = rng() % 2 == 0 ? NumberKind::integer : NumberKind::floating;
  plan.lead = static_cast<std::uint8_t>(rng() % plan.element.width);
  plan.predictor = !has_base ? Predictor::none : rng() % 4 == 0 ? Predictor::exclusive_or : Predictor::subtract;
  plan.groups.clear();
  const std::size_t groups = plan.predictor == Predictor::subtract ? 1 + rng() % 6 : 1;
  for (std::size_t g = 0; g < groups; ++g) {
    plan.groups.push_back({.last_key = static_cast<std::uint8_t>(g + 1 == groups ? 255 : g * 40 + rng() % 40),
                           .form = rng() % 2 == 0 ? GroupForm::planes : GroupForm::sparse,
                           .sign = plan.predictor == Predictor::subtract && rng() % 2 == 0 ? Sign::folded : Sign::kept,
                           .center = plan.predictor == Predictor::subtract ? rng() : 0});
  }
  return plan;
}

/// Mostly the base, so that sparse groups are sparse.
Bytes like(std::mt19937_64& rng, const Bytes& base) {
  Bytes raw = base;
  for (std::byte& b : raw) {
    if (rng() % 20 == 0) b = static_cast<std::byte>(rng());
  }
  return raw;
}

}  // namespace

TEST_SUITE("typed blocks") {
  TEST_CASE("any bytes come back by any plan") {
    std::mt19937_64 rng(11);
    constexpr std::array<std::size_t, 12> sizes = {1, 2, 3, 7, 8, 9, 63, 64, 65, 1000, 40000, 300001};
    for (int round = 0; round < 400; ++round) {
      const std::size_t size = sizes[rng() % sizes.size()];
      const bool has_base = rng() % 3 != 0;
      const TypedPlan plan = random_plan(rng, has_base);
      if (size < plan.lead) continue;
      const Bytes base = has_base ? noise(rng, size) : Bytes();
      const Bytes raw = has_base && rng() % 2 == 0 ? like(rng, base) : noise(rng, size);
      INFO("round ", round, " size ", size, " width ", int(plan.element.width), " groups ", plan.groups.size());
      REQUIRE(comes_back(plan, raw, base, rng() % 2 == 0 ? Effort::fast : Effort::best));
    }
  }

  TEST_CASE("weights cost less than their bytes, and less again against the step before") {
    std::mt19937_64 rng(5);
    const std::vector<float> before = codec_test::weights(rng, 200000);
    const Bytes base = codec_test::bytes_of(before);
    const Bytes raw = codec_test::bytes_of(codec_test::moved(rng, before, 1e-5F));
    const TypedPlan full{.element = {.kind = NumberKind::floating, .width = 4}};
    TypedPlan delta = full;
    delta.predictor = Predictor::subtract;
    CHECK(comes_back(full, raw, {}));
    CHECK(comes_back(delta, raw, base));
    const auto size = [&](const TypedPlan& plan, ByteView against) { return encoded(plan, raw, against).size(); };
    CHECK(size(full, {}) < raw.size() * 87 / 100);
    CHECK(size(delta, base) < size(full, {}) * 9 / 10);
  }

  TEST_CASE("equal bytes that stand together are told from those that chance strews") {
    std::mt19937_64 rng(4);
    Bytes strewn(40000), together(40000);
    for (std::size_t i = 0; i < strewn.size(); ++i) {
      strewn[i] = static_cast<std::byte>(rng() % 4 == 0 ? 1 : 0);
      together[i] = static_cast<std::byte>(i / 500 % 4 == 0 ? 1 : 0);
    }
    CHECK(sample_clustering(strewn, 8192) < 0.05);
    CHECK(sample_clustering(together, 8192) > 0.9);
    CHECK(sample_clustering(Bytes(100, std::byte{7}), 8192) == 0);
    CHECK(sample_clustering({}, 8192) == 0);
    CHECK(sample_histogram(strewn, 8192).total() == 8192);
    CHECK(sample_histogram(strewn, 8192).entropy() == doctest::Approx(0.81).epsilon(0.03));
  }

  TEST_CASE("a rounded copy costs nothing") {
    std::mt19937_64 rng(6);
    const std::vector<float> master = codec_test::weights(rng, 50000);
    const Bytes raw = codec_test::bytes_of(codec_test::as_bfloat16(master));
    TypedPlan plan{.element = {.kind = NumberKind::floating, .width = 2}};
    plan.predictor = Predictor::exclusive_or;
    plan.rounding = Rounding::to_bfloat16;
    const Bytes base = codec_test::bytes_of(master);
    CHECK(comes_back(plan, raw, base));
    CHECK(encoded(plan, raw, base).size() < 64);
    Bytes other = raw;
    other[1000] ^= std::byte{1};
    CHECK(comes_back(plan, other, base));
  }

  TEST_CASE("a payload that is cut short or altered is refused or gives other bytes, and never more of them") {
    std::mt19937_64 rng(8);
    for (int round = 0; round < 60; ++round) {
      const bool has_base = round % 2 == 0;
      const TypedPlan plan = random_plan(rng, has_base);
      const Bytes base = has_base ? noise(rng, 3001) : Bytes();
      const Bytes raw = has_base ? like(rng, base) : noise(rng, 3001);
      const Bytes payload = encoded(plan, raw, base);
      TypedDecoder decoder;
      Bytes out(raw.size());
      for (std::size_t cut = 0; cut < payload.size(); cut += 1 + payload.size() / 50) {
        CHECK_FALSE(decoder.decode(ByteView(payload).first(cut), base, out));
      }
      for (int flip = 0; flip < 100; ++flip) {
        Bytes bad = payload;
        const std::size_t at = flip < 60 ? rng() % std::min<std::size_t>(bad.size(), 150) : rng() % bad.size();
        bad[at] ^= static_cast<std::byte>(1U << (rng() % 8));
        if (decoder.decode(bad, base, out)) CHECK(decoder.decodes_to(out, bad, base));
        CHECK(decoder.decodes_to(raw, bad, base) == (decoder.decode(bad, base, out) && out == raw));
        (void)decoder.decode_derived(bad, base, out);
        if (has_base) (void)decoder.decode(bad, {}, out);
      }
    }
  }
}
