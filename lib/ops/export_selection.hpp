// SPDX-License-Identifier: Apache-2.0
// Which tensors of a checkpoint are exported, and under which names.
#pragma once

#include "ops/export_layout.hpp"
#include "ops/export_source.hpp"
#include "ops/global_tensors.hpp"
#include "store/store.hpp"

#include <ckpt/restore.hpp>

#include <vector>

namespace ckpt::ops {

/// In the order of shards, files and tensors. Identical replicas come once. A sparse tensor has no bytes under its own
/// name: it's left out where its parts are chosen, too.
///
/// Throws not_found, naming the pattern, file pattern or rank that nothing matches; unsupported for a tensor without
/// bytes; invalid_argument if two different tensors would get one name.
[[nodiscard]] std::vector<ExportItem> select_tensors(const store::Checkpoint& checkpoint, const ExportOptions& options,
                                                     ExportSource& source, const Monitor& monitor);

/// The same where the parts of shards are joined. `options.select` has been seen to by `tensors`. Also throws
/// Errc::damaged for a tensor that isn't complete.
[[nodiscard]] std::vector<ExportItem> select_wholes(const GlobalTensors& tensors, const ExportOptions& options,
                                                    const Monitor& monitor);

}  // namespace ckpt::ops
