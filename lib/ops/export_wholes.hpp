// SPDX-License-Identifier: Apache-2.0
// Whole tensors in order, for an export that joins shards: read in slabs, some of them ahead, so that memory is bounded
// however large the tensors are.
#pragma once

#include "core/bytes.hpp"
#include "ops/export_layout.hpp"
#include "ops/global_tensors.hpp"

#include <ckpt/monitor.hpp>

#include <cstddef>
#include <functional>
#include <vector>

namespace ckpt::ops {

/// Gives the contiguous bytes of one item after the other to `consume`, on the calling thread, with the item's number
/// in `items`; for one without bytes an empty piece. Throws as GlobalTensors::read() does.
void stream_wholes(const GlobalTensors& tensors, const std::vector<const ExportItem*>& items, unsigned jobs,
                   const Monitor& monitor, const std::function<void(std::size_t number, ByteView)>& consume);

/// True if two tensors have the same type, shape and values. Reads both where that's open.
[[nodiscard]] bool are_the_same(const GlobalTensors& tensors, const GlobalTensor& a, const GlobalTensor& b,
                                const Monitor& monitor);

}  // namespace ckpt::ops
