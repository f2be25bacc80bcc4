// SPDX-License-Identifier: Apache-2.0
// Other bytes in the place of some of a shard's, block by block, while it's encoded anew.
#pragma once

#include "core/bytes.hpp"

#include <cstdint>
#include <span>

namespace ckpt::ops {

/// Thread-safe. The same block is always changed in the same way.
class ContentChange {
 public:
  virtual ~ContentChange() = default;
  [[nodiscard]] virtual bool touches(std::uint64_t block) const = 0;
  /// Changes all of a block's bytes in place.
  virtual void apply(std::uint64_t block, std::span<std::byte> raw) const = 0;
};

/// A block as it will be: `raw` where `change` is null or leaves it alone, else put in `buffer`.
[[nodiscard]] inline ByteView with_change(const ContentChange* change, std::uint64_t block, ByteView raw,
                                          Bytes& buffer) {
  if (change == nullptr || !change->touches(block)) return raw;
  buffer.assign(raw.begin(), raw.end());
  change->apply(block, buffer);
  return buffer;
}

}  // namespace ckpt::ops
