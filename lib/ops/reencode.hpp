// SPDX-License-Identifier: Apache-2.0
// Committed checkpoints encoded anew: new containers in the same directory, and a new manifest over the old one. What
// they hold, how it's cut into blocks, and their ids stay. For all of these the caller holds the store's lock.
#pragma once

#include "format/base.hpp"
#include "ops/shard_encoder.hpp"
#include "store/store.hpp"
#include "store/swap.hpp"

#include <ckpt/monitor.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ckpt::ops {

struct ReencodePlan {
  /// Blocks may be stored against this one's. It doesn't depend on the checkpoint, and isn't damaged.
  std::optional<store::Checkpoint> base;
  /// Checkpoints that no block may refer to afterwards.
  std::vector<format::BaseCheckpoint> avoid;
  /// Blocks that don't refer to any of `avoid` are taken over as they are.
  bool only_where_needed = false;
  /// Others depend on this checkpoint, so no block's chain may get longer.
  bool has_dependents = false;
  /// Blocks that a lower rank has too are stored there alone.
  bool across_ranks = false;
  /// Else the checkpoint stays as it is.
  bool only_if_smaller = false;
  /// Called when all is written, and who pins the checkpoint from now on as a base is refused: throws to leave it as it
  /// is. Needed where chains may get longer.
  std::function<void()> last_look = {};
  EncodeSettings settings;
};

struct ReencodeResult {
  std::uint64_t stored_before = 0;
  std::uint64_t stored_after = 0;
  bool swapped = false;
};

/// Checks every block on its way; on any Error the checkpoint is as it was. Throws Damaged, no_space, io, interrupted.
ReencodeResult reencode(const store::Store& store, const store::Checkpoint& checkpoint, const ReencodePlan& plan,
                        unsigned jobs, Monitor& monitor);

/// The last step of what encodes anew: the plan's last look, then the swap.
void swap_after_last_look(const store::Store& store, const store::Checkpoint& checkpoint, format::Manifest manifest,
                          const std::vector<store::NewContainer>& containers, const ReencodePlan& plan);

/// About how many bytes it would have, from a sample of its blocks. Needs no lock and changes nothing.
[[nodiscard]] std::uint64_t estimate_reencode(const store::Checkpoint& checkpoint, const ReencodePlan& plan,
                                              unsigned jobs, Monitor& monitor);

/// What the avoided checkpoints that this one depends on depend on themselves, and isn't avoided: the nearest of these.
[[nodiscard]] std::optional<store::Checkpoint> base_beyond(const store::Store& store,
                                                           const store::Checkpoint& checkpoint,
                                                           const std::vector<format::BaseCheckpoint>& avoid);

/// Encodes a checkpoint, committed or retired, so that it depends on none of `avoid`: what did is stored against what
/// those depend on, or in full.
void rebase(const store::Store& store, const store::Checkpoint& checkpoint,
            const std::vector<format::BaseCheckpoint>& avoid, unsigned jobs, Monitor& monitor);

/// Makes zeros of the tensors whose names match. The id is a new one, and the mark "lossy" gets reason_of_drop(pattern)
/// also where no tensor matched, so that it isn't tried again. No checkpoint depends on it when this is called.
void drop_tensors(const store::Store& store, const store::Checkpoint& checkpoint, const std::string& pattern,
                  unsigned jobs, Monitor& monitor);

}  // namespace ckpt::ops
