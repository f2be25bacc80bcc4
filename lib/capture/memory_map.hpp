// SPDX-License-Identifier: Apache-2.0
// What this process has mapped, by /proc/self/maps.
#pragma once

#include "capture/mapped_memory.hpp"

#include <string_view>
#include <vector>

namespace ckpt::capture {

enum class MappingKind {
  anonymous,   ///< this process's own: can be write-protected
  shared,      ///< another process's writes are seen by no one
  file,        ///< private, of a file or a device, or of huge pages that were set apart
  unreadable,  ///< or not writable: no one's tensors
};

struct Mapping {
  Interval at;
  MappingKind kind = MappingKind::unreadable;
};

/// One line of the file, without its end. Throws io.
[[nodiscard]] Mapping parse_mapping(std::string_view line);
/// In ascending order. Throws io.
[[nodiscard]] std::vector<Mapping> read_memory_map();

}  // namespace ckpt::capture
