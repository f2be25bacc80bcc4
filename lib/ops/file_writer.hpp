// SPDX-License-Identifier: Apache-2.0
// Moves bytes from containers to files: frame by frame, in parallel, every block checked on its way.
#pragma once

#include "ops/destination.hpp"
#include "ops/open_shard.hpp"
#include "ops/restore_plan.hpp"

#include <ckpt/monitor.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ckpt::ops {

struct FileToWrite {
  const PlanItem* item = nullptr;
  bool sync = false;  ///< before it's closed
};

/// Writes all of them under temporary names of `destination`. Throws Damaged with the names of what is hit; no_space,
/// io, interrupted.
void write_files(const Shards& shards, const std::vector<FileToWrite>& files, Destination& destination, unsigned jobs,
                 Monitor& monitor);

/// Writes one file's bytes to a descriptor, in order; returns how many.
std::uint64_t stream_file(const Shards& shards, const PlanItem& item, int fd, unsigned jobs, Monitor& monitor);

/// Decodes and checks one file's blocks. Throws Damaged.
void check_file(const Shards& shards, const PlanItem& item, unsigned jobs, Monitor& monitor);

/// For each of `candidates` (numbers of items whose file is there with the right size): are its bytes the stored ones?
[[nodiscard]] std::vector<bool> have_same_bytes(const Shards& shards, const std::vector<PlanItem>& plan,
                                                const std::vector<std::size_t>& candidates,
                                                const Destination& destination, unsigned jobs, Monitor& monitor);

}  // namespace ckpt::ops
