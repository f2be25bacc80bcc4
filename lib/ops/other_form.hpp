// SPDX-License-Identifier: Apache-2.0
// A checkpoint encoded otherwise for the way to another store, in files without a name: without bases that aren't
// there, or against one that is.
#pragma once

#include "format/manifest.hpp"
#include "os/fd.hpp"
#include "transport/replica.hpp"

#include <ckpt/monitor.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ckpt::ops {

struct OtherForm {
  format::Manifest manifest;
  std::vector<os::Fd> files;  ///< by rank

  /// Throws not_found for a file that the manifest doesn't name, damaged beyond the end of one.
  void read(const std::string& file, std::uint64_t offset, std::span<std::byte> into) const;
};

/// Without a base to store it against, blocks that need none of those to do without stay as they are. Nothing if it
/// would be larger than asked for, which is estimated first, or if the store's file system can't be written to. Throws
/// not_found if the checkpoint, or the base, isn't in the store.
[[nodiscard]] std::optional<OtherForm> make_other_form(const std::string& store, const transport::FormRequest& request,
                                                       unsigned jobs, Monitor& monitor);

}  // namespace ckpt::ops
