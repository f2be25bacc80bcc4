// SPDX-License-Identifier: Apache-2.0
// A checkpoint encoded so that it needs fewer others, in files without a name: for one that is copied alone.
#pragma once

#include "format/manifest.hpp"
#include "os/fd.hpp"
#include "store/store.hpp"

#include <ckpt/monitor.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ckpt::ops {

struct StandaloneForm {
  format::Manifest manifest;
  std::vector<os::Fd> files;  ///< by rank

  /// Throws not_found for a file that the manifest doesn't name, damaged beyond the end of one.
  void read(const std::string& file, std::uint64_t offset, std::span<std::byte> into) const;
};

/// Blocks that don't need any of `without` stay as they are. Nothing if it would have more than `most` bytes, which is
/// estimated first, or if the store's file system can't be written to.
[[nodiscard]] std::optional<StandaloneForm> make_standalone(const store::Checkpoint& checkpoint,
                                                            const std::vector<format::BaseCheckpoint>& without,
                                                            std::uint64_t most, unsigned jobs, Monitor& monitor);

}  // namespace ckpt::ops
