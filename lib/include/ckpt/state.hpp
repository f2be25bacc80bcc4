// SPDX-License-Identifier: Apache-2.0
// The states of a save: in logs, records, metrics and return values there are no others.
#pragma once

#include <ckpt/export.hpp>

#include <string_view>

namespace ckpt {

enum class SaveState {
  staged,    ///< accepted: the input may be overwritten
  writing,   ///< on its way to the store
  written,   ///< the own shard is on stable storage
  durable,   ///< the checkpoint is committed and on stable storage
  verified,  ///< read back and found good
  failed,
  skipped,
};

[[nodiscard]] CKPT_API std::string_view to_string(SaveState state);

}  // namespace ckpt
