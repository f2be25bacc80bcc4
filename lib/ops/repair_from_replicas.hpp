// SPDX-License-Identifier: Apache-2.0
// Mends what no single bit explains, with blocks of replicas that hold the same content.
#pragma once

#include "ops/repair.hpp"
#include "ops/replica_blocks.hpp"

namespace ckpt::ops {

/// Writes a container in which only the damaged blocks are new, stored as they are; or, if nothing can be read of the
/// old one's index, a replica's own. Takes the store's lock. Errors: no_space, busy, io, interrupted.
[[nodiscard]] RepairResult repair_from_replicas(const store::Store& store, const store::Checkpoint& checkpoint,
                                                const format::ManifestShard& shard, const ReplicaBlocks& replicas,
                                                unsigned jobs, Monitor& monitor);

/// A manifest as a replica has it, that names the containers which are here. Sets `found.repaired` and `found.repair`.
void repair_manifest_from_replicas(const store::Store& store, std::uint64_t step, const ReplicaBlocks& replicas,
                                   Damage& found);

}  // namespace ckpt::ops
