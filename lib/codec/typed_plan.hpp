// SPDX-License-Identifier: Apache-2.0
// Finding a plan for a typed block, and what it will cost, from a sample of its elements.
#pragma once

#include "codec/typed_block.hpp"

#include <cstddef>
#include <cstdint>

namespace ckpt::codec {

/// A plan with the share of the raw size that the block is expected to take with it.
struct PricedPlan {
  TypedPlan plan;
  double share = 1;
};

/// Plans for one block. `raw` and `base` begin at the block's start; `lead` is where its first element begins.
/// Thread-safe: nothing is kept.
[[nodiscard]] PricedPlan plan_full(Element element, std::uint8_t lead, ByteView raw);
/// `base` has as many bytes as `raw`. Groups make encoding and decoding half as fast again: Effort::fast has them only
/// where they're worth it.
[[nodiscard]] PricedPlan plan_delta(Element element, std::uint8_t lead, ByteView raw, ByteView base, Effort effort);
[[nodiscard]] PricedPlan plan_exclusive_or(Element element, std::uint8_t lead, ByteView raw, ByteView base);

}  // namespace ckpt::codec
