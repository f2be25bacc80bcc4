// SPDX-License-Identifier: Apache-2.0
// Finds the one bit that was flipped, by trying each against the checksums.
#pragma once

#include "format/ends.hpp"
#include "os/adaptive_reader.hpp"

#include <ckpt/monitor.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ckpt::ops {

/// A bit of a file that must be turned over.
struct FlippedBit {
  std::uint64_t byte = 0;
  unsigned bit = 0;
};

struct Mending {
  std::vector<FlippedBit> flips;  ///< with these turned over, all sums are right; empty if nothing was wrong
  std::string failure;            ///< not empty: why it can't be mended; `flips` is then empty
};

/// At most one bit a granule, or one in the sums, or one in the footer. Searches a damaged granule in a
/// fraction of a second.
[[nodiscard]] Mending find_flipped_bits(const os::AdaptiveReader& file, unsigned jobs, Monitor& monitor);

/// One bit of a sealed JSON text; nothing if no single one makes it whole.
[[nodiscard]] std::optional<FlippedBit> find_flipped_bit(const std::string& sealed_text);

}  // namespace ckpt::ops
