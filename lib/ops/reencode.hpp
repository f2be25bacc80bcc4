// SPDX-License-Identifier: Apache-2.0
// Committed checkpoints encoded anew: new containers in the same directory, and a new manifest over the old one. For
// all of these the caller holds the store's lock.
#pragma once

#include "core/digest.hpp"
#include "store/store.hpp"

#include <ckpt/monitor.hpp>

#include <string>
#include <vector>

namespace ckpt::ops {

/// Encodes a checkpoint, committed or retired, so that it depends on none of `avoid`. Its id stays.
void rebase(const store::Store& store, const store::Checkpoint& checkpoint, const std::vector<Digest>& avoid,
            unsigned jobs, Monitor& monitor);

/// Makes zeros of the tensors whose names match. The id is a new one, and the mark "lossy" gets reason_of_drop(pattern)
/// also where no tensor matched, so that it isn't tried again. No checkpoint depends on it when this is called.
void drop_tensors(const store::Store& store, const store::Checkpoint& checkpoint, const std::string& pattern,
                  unsigned jobs, Monitor& monitor);

}  // namespace ckpt::ops
