// SPDX-License-Identifier: Apache-2.0
// What the encoder and the decoder of typed blocks share: the payload's head, and how residuals are cut into planes.
#pragma once

#include "codec/key_groups.hpp"
#include "codec/typed_block.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace ckpt::codec {

inline constexpr std::size_t typed_head_size = 8;
inline constexpr std::size_t group_head_size = 16;
/// Elements that are worked on at once: what the processor's first cache holds, in two or three forms.
inline constexpr std::size_t chunk_elements = 2048;

struct TypedHead {
  TypedPlan plan;
  std::vector<std::uint32_t> counts;  ///< elements of each group
};

void append_head(const TypedPlan& plan, Bytes& out);
/// Sets the counts in a head that append_head() has put at `at`.
void set_count(Bytes& payload, std::size_t at, std::size_t group, std::uint32_t count);
/// Takes the head; nothing if it's none, or if the groups don't hold `raw_size` bytes.
[[nodiscard]] std::optional<TypedHead> take_head(ByteReader& in, std::uint64_t raw_size);

/// What `size` bytes of elements are predicted from: the base's own elements, or their roundings, put in `rounded`;
/// empty without a base.
[[nodiscard]] ByteView predictions(const TypedPlan& plan, ByteView base, std::size_t size, os::AlignedBuffer& rounded);

/// Calls work(first, count) for one chunk after the other.
template <class Work>
void for_each_chunk(std::size_t count, Work&& work) {
  for (std::size_t i = 0; i < count; i += chunk_elements) work(i, std::min(chunk_elements, count - i));
}

[[nodiscard]] KeyGroups key_groups(const std::vector<GroupPlan>& groups);

}  // namespace ckpt::codec
