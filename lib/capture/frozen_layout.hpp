// SPDX-License-Identifier: Apache-2.0
// Ranges of memory, cut into the chunks that are kept or copied as one. Whole pages of what can be write-protected are
// chunks where they lie, cut at the addresses of huge pages; pages that several ranges share are in one chunk. All
// other bytes, ends and small ranges and what can't be protected, are strung together on a tape, which is cut likewise:
// many small tensors are a few chunks.
#pragma once

#include "capture/frozen_memory.hpp"
#include "capture/mapped_memory.hpp"
#include "capture/memory_map.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace ckpt::capture {

/// A range is [0, middle) and [tail, size) of bytes on the tape, and protected pages between them.
struct RangePlace {
  std::uintptr_t begin = 0;
  std::uint64_t size = 0;
  std::uint64_t middle = 0;
  std::uint64_t tail = 0;
  std::uint64_t head_on_tape = 0;
  std::uint64_t tail_on_tape = 0;
};

/// Bytes of the owner's that stand on the tape.
struct TapePiece {
  std::uintptr_t address = 0;
  std::uint64_t size = 0;
  std::uint64_t at = 0;
};

struct FrozenLayout {
  MappedVector<RangePlace> ranges;
  MappedVector<Interval> protected_chunks;  ///< ascending, disjoint, each within one cell and one mapping
  MappedVector<Interval> watched;           ///< what's around them, one for each mapping
  MappedVector<TapePiece> tape;             ///< ascending
  std::uint64_t tape_size = 0;
  std::uint64_t protected_bytes = 0;  ///< of ranges
  std::uint64_t copied_bytes = 0;
  std::string why_copied;  ///< the reason for most of them
};

/// `why_never`: if not empty, all is copied, for that reason. Throws invalid_argument if a range isn't mapped.
[[nodiscard]] FrozenLayout lay_out(const std::vector<MemoryRange>& ranges, const std::string& why_never);

}  // namespace ckpt::capture
