// SPDX-License-Identifier: Apache-2.0
// Checks one container's bytes: every granule against its sum, every block against its hash.
#pragma once

#include "format/container_reader.hpp"
#include "format/ends.hpp"
#include "os/adaptive_reader.hpp"

#include <ckpt/monitor.hpp>
#include <ckpt/verify.hpp>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace ckpt::ops {

/// Damage in one container: what is hit there is for describe_hit().
struct Problem {
  DamageKind kind = DamageKind::altered;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::string detail;
};

struct CheckRequest {
  /// Only what starts in this part of the container.
  std::uint64_t begin = 0;
  std::uint64_t end = std::numeric_limits<std::uint64_t>::max();
  /// Pieces for whose place this is false are passed over: sampling. Empty: all.
  std::function<bool(std::uint64_t place)> wanted = {};
  unsigned jobs = 0;
  /// The sums, where the caller has read them; else they're read.
  const std::vector<std::uint64_t>* sums = nullptr;
  /// Sees every block that is sound. From any thread.
  std::function<void(std::uint64_t block, ByteView raw)> on_block = {};
  /// Told how many bytes were checked just now. From any thread.
  std::function<void(std::uint64_t bytes)> on_progress = {};
};

/// Bytes that a check reads at once; begin and end are best multiples of it.
inline constexpr std::uint64_t check_unit = 2U << 20U;

/// All granules against the sums. Needs nothing but a sound footer. In order of place, neighbours joined.
[[nodiscard]] std::vector<Problem> check_sums(const os::AdaptiveReader& file, const format::Footer& footer,
                                              const CheckRequest& request, Monitor& monitor);

/// All frame headers against the index and all blocks against their hashes. In order of place.
[[nodiscard]] std::vector<Problem> check_blocks(const format::ContainerReader& container, const CheckRequest& request,
                                                Monitor& monitor);

}  // namespace ckpt::ops
