// SPDX-License-Identifier: Apache-2.0
#include "codec/typed_format.hpp"

#include "codec/kernels.hpp"

namespace ckpt::codec {

void append_head(const TypedPlan& plan, Bytes& out) {
  append_le(out, static_cast<std::uint8_t>(plan.element.kind));
  append_le(out, plan.element.width);
  append_le(out, plan.lead);
  append_le(out, static_cast<std::uint8_t>(plan.predictor));
  append_le(out, static_cast<std::uint8_t>(plan.rounding));
  append_le(out, static_cast<std::uint8_t>(plan.groups.size()));
  append_le<std::uint16_t>(out, 0);
  for (const GroupPlan& group : plan.groups) {
    append_le(out, group.last_key);
    append_le(out, static_cast<std::uint8_t>(group.form));
    append_le(out, static_cast<std::uint8_t>(group.sign));
    append_le<std::uint8_t>(out, 0);
    append_le<std::uint32_t>(out, 0);
    append_le(out, group.center);
  }
}

void set_count(Bytes& payload, std::size_t at, std::size_t group, std::uint32_t count) {
  store_le(payload.data() + at + typed_head_size + group * group_head_size + 4, count);
}

std::optional<TypedHead> take_head(ByteReader& in, std::uint64_t raw_size) {
  const auto bytes = in.take(typed_head_size);
  if (!bytes) return std::nullopt;
  const auto byte = [&](std::size_t i) { return std::to_integer<std::uint8_t>((*bytes)[i]); };
  const std::uint8_t width = byte(1);
  const bool known = byte(0) <= 1 && (width == 1 || width == 2 || width == 4 || width == 8) && byte(2) < width &&
                     byte(3) <= 2 && byte(4) <= 2 && byte(5) >= 1 && byte(5) <= max_groups && byte(6) == 0 &&
                     byte(7) == 0;
  if (!known || raw_size < byte(2)) return std::nullopt;
  TypedHead head;
  head.plan = {.element = {.kind = static_cast<NumberKind>(byte(0)), .width = width},
               .lead = byte(2),
               .predictor = static_cast<Predictor>(byte(3)),
               .rounding = static_cast<Rounding>(byte(4)),
               .groups = {}};
  std::uint64_t elements = 0;
  for (std::uint8_t g = 0; g < byte(5); ++g) {
    const auto last_key = in.number<std::uint8_t>();
    const auto form = in.number<std::uint8_t>();
    const auto sign = in.number<std::uint8_t>();
    const auto zero = in.number<std::uint8_t>();
    const auto count = in.number<std::uint32_t>();
    const auto center = in.number<std::uint64_t>();
    if (!center || *form > 1 || *sign > 1 || *zero != 0) return std::nullopt;
    if (g > 0 && *last_key <= head.plan.groups.back().last_key) return std::nullopt;
    head.plan.groups.push_back({.last_key = *last_key,
                                .form = static_cast<GroupForm>(*form),
                                .sign = static_cast<Sign>(*sign),
                                .center = *center});
    head.counts.push_back(*count);
    elements += *count;
  }
  if (head.plan.groups.back().last_key != 0xff || elements != (raw_size - byte(2)) / width) return std::nullopt;
  return head;
}

ByteView predictions(const TypedPlan& plan, ByteView base, std::size_t size, os::AlignedBuffer& rounded) {
  if (base.empty()) return base;
  if (plan.rounding == Rounding::none) return base.subspan(plan.lead, size);
  rounded.reserve(size);
  const RoundingKernels& round = kernels().round;
  const auto kernel = plan.rounding == Rounding::to_bfloat16 ? round.to_bfloat16 : round.to_float16;
  kernel(base.data(), size / 2, rounded.data());
  return {rounded.data(), size};
}

KeyGroups key_groups(const std::vector<GroupPlan>& groups) {
  std::array<std::uint8_t, max_groups> last_keys{};
  for (std::size_t g = 0; g < groups.size(); ++g) last_keys[g] = groups[g].last_key;
  return KeyGroups({last_keys.data(), groups.size()});
}

}  // namespace ckpt::codec
