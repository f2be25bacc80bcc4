// SPDX-License-Identifier: Apache-2.0
// Bytes at random places, whether they lie in a store's blocks or in a plain file. For one thread.
#pragma once

#include "core/bytes.hpp"
#include "ops/stored_file.hpp"

#include <algorithm>
#include <cstdint>
#include <span>

namespace ckpt::ops {

class RandomBytes {
 public:
  virtual ~RandomBytes() = default;

  [[nodiscard]] virtual std::uint64_t size() const = 0;
  /// The bytes from `offset` on, one at least; valid until the next call. `offset` is below size().
  [[nodiscard]] virtual ByteView at(std::uint64_t offset) = 0;

  /// Fills `into`; the range lies inside.
  void read(std::uint64_t offset, std::span<std::byte> into) {
    while (!into.empty()) {
      const ByteView there = at(offset);
      const std::size_t count = std::min(there.size(), into.size());
      std::copy_n(there.begin(), count, into.begin());
      into = into.subspan(count);
      offset += count;
    }
  }
};

/// A file of a store.
class CursorBytes final : public RandomBytes {
 public:
  /// `cursor` outlives this object.
  explicit CursorBytes(BlockCursor& cursor) : cursor_(cursor) {}
  [[nodiscard]] std::uint64_t size() const override { return cursor_.file().size(); }
  [[nodiscard]] ByteView at(std::uint64_t offset) override { return cursor_.at(offset); }

 private:
  BlockCursor& cursor_;
};

}  // namespace ckpt::ops
