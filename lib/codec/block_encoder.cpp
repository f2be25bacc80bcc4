// SPDX-License-Identifier: Apache-2.0
#include "codec/block_encoder.hpp"

#include "codec/kernels.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <array>
#include <cstring>

namespace ckpt::codec {
namespace {

/// A delta makes its block depend on another, and must be worth that.
constexpr double delta_gain = 0.95;
/// What saves less than this isn't worth decoding.
constexpr double least_gain = 0.985;
constexpr int fast_level = 1;
constexpr int best_level = 3;
/// Bytes of a block that zstd is tried on.
constexpr std::size_t packed_sample = 32768;
/// Untyped blocks smaller than this are headers and text, and no arrays.
constexpr std::size_t least_guessed = 4096;

/// What bytes of unknown type are mostly, in checkpoints.
constexpr std::array<Element, 3> guesses = {{{.kind = NumberKind::floating, .width = 4},
                                             {.kind = NumberKind::floating, .width = 2},
                                             {.kind = NumberKind::integer, .width = 8}}};

const PricedPlan& cheaper(const PricedPlan& a, const PricedPlan& b) { return b.share < a.share ? b : a; }

PricedPlan best_full(const BlockInput& input) {
  PricedPlan best = plan_full(input.element, input.lead, input.raw);
  if (input.untyped && input.raw.size() >= least_guessed) {
    for (const Element& guess : guesses) best = cheaper(best, plan_full(guess, 0, input.raw));
  }
  return best;
}

PricedPlan best_delta(const BlockInput& input, Effort effort) {
  PricedPlan best = plan_delta(input.element, input.lead, input.raw, input.base, effort);
  if (input.element.kind == NumberKind::integer) {
    best = cheaper(best, plan_exclusive_or(input.element, input.lead, input.raw, input.base));
  }
  if (input.untyped && input.raw.size() >= least_guessed) {
    for (const Element& guess : guesses) best = cheaper(best, plan_delta(guess, 0, input.raw, input.base, effort));
  }
  return best;
}

}  // namespace

BlockEncoder::BlockEncoder(Effort effort, bool check, std::optional<int> level)
    : effort_(effort), check_(check), level_(level.value_or(effort == Effort::best ? best_level : fast_level)) {}

bool BlockEncoder::is_rounding_of_master(const BlockInput& input) {
  if (input.rounding == Rounding::none || input.lead != 0 || input.master.size() != 2 * input.raw.size() ||
      input.raw.size() % 2 != 0) {
    return false;
  }
  constexpr std::size_t probe = 512;
  const std::size_t n = std::min(probe, input.raw.size() / 2);
  std::array<std::byte, probe * 2> rounded;
  const auto& round = kernels().round;
  const auto kernel = input.rounding == Rounding::to_bfloat16 ? round.to_bfloat16 : round.to_float16;
  kernel(input.master.data(), n, rounded.data());
  std::size_t same = 0;
  for (std::size_t i = 0; i < n; ++i) same += std::memcmp(&rounded[2 * i], &input.raw[2 * i], 2) == 0 ? 1U : 0U;
  return same >= n - n / 16;
}

double BlockEncoder::packed_share(ByteView raw) {
  ByteView sample = raw;
  if (raw.size() > packed_sample) {
    // From the middle: a file's beginning is like no other part of it.
    sample = raw.subspan((raw.size() - packed_sample) / 2, packed_sample);
  }
  return static_cast<double>(zstd_.compress(sample, level_).size()) / static_cast<double>(sample.size());
}

bool BlockEncoder::try_typed(const TypedPlan& plan, ByteView raw, ByteView base, std::size_t limit, Bytes& out) {
  const std::size_t at = out.size();
  typed_.encode(plan, raw, base, effort_, out);
  if (out.size() - at < limit) return true;
  out.resize(at);
  return false;
}

bool BlockEncoder::try_packed(ByteView raw, Bytes& out) {
  const ByteView packed = zstd_.compress(raw, level_);
  if (packed.size() >= raw.size()) return false;
  append(out, packed);
  return true;
}

BlockForm BlockEncoder::smaller_alone(const TypedPlan& plan, ByteView raw, Bytes& out) {
  const std::size_t at = out.size();
  const bool packed = try_packed(raw, out);
  second_.clear();
  if (try_typed(plan, raw, {}, packed ? out.size() - at : raw.size(), second_)) {
    out.resize(at);
    append(out, second_);
    return {.codec = Codec::typed, .has_base = false};
  }
  return {.codec = packed ? Codec::zstd : Codec::raw, .has_base = false};
}

BlockForm BlockEncoder::choose(const BlockInput& input, Bytes& out) {
  const std::size_t size = input.raw.size();
  if (is_rounding_of_master(input)) {
    const TypedPlan plan{.element = {.kind = NumberKind::floating, .width = 2},
                         .lead = 0,
                         .predictor = Predictor::exclusive_or,
                         .rounding = input.rounding,
                         .groups = {{.form = GroupForm::sparse}}};
    if (try_typed(plan, input.raw, input.master, size / 4, out)) return {.codec = Codec::derived, .has_base = true};
  }
  const PricedPlan full = best_full(input);
  const bool may_repeat = input.untyped || input.element.kind == NumberKind::integer || effort_ == Effort::best;
  const double packed = may_repeat ? packed_share(input.raw) : 1;
  const double alone = std::min({1.0, full.share, packed});
  if (!input.base.empty()) {
    const PricedPlan delta = best_delta(input, effort_);
    if (delta.share < alone * delta_gain && try_typed(delta.plan, input.raw, input.base, size, out)) {
      return {.codec = Codec::typed, .has_base = true};
    }
  }
  if (effort_ == Effort::best) return smaller_alone(full.plan, input.raw, out);
  if (alone > least_gain) return {};
  if (packed <= full.share && try_packed(input.raw, out)) return {.codec = Codec::zstd, .has_base = false};
  if (try_typed(full.plan, input.raw, {}, size, out)) return {.codec = Codec::typed, .has_base = false};
  return {};
}

void BlockEncoder::compare(const BlockInput& input, BlockForm form, ByteView stored) {
  const auto unpacks = [&] {
    decoded_.reserve(input.raw.size());
    const std::span<std::byte> raw(decoded_.data(), input.raw.size());
    return zstd_decompress(stored, raw) && std::memcmp(raw.data(), input.raw.data(), raw.size()) == 0;
  };
  if (form.codec == Codec::raw) return;
  if (form.codec == Codec::zstd ? unpacks()
      : form.codec == Codec::derived
          ? decoder_.derived_decodes_to(input.raw, stored, input.master)
          : decoder_.decodes_to(input.raw, stored, form.has_base ? input.base : ByteView())) {
    return;
  }
  throw Error(Errc::io, "a block that was encoded decodes to other bytes")
      .with_hint("the memory or the processor of this machine is at fault; nothing was committed");
}

BlockForm BlockEncoder::encode(const BlockInput& input, Bytes& out) {
  const std::size_t at = out.size();
  const BlockForm form = choose(input, out);
  if (check_) compare(input, form, ByteView(out).subspan(at));
  return form;
}

}  // namespace ckpt::codec
