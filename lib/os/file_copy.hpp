// SPDX-License-Identifier: Apache-2.0
// A file's bytes to another file, by the cheapest way that the file system has.
#pragma once

#include "os/fd.hpp"

#include <cstdint>
#include <functional>
#include <string>

namespace ckpt::os {

enum class Copied {
  cloned,  ///< the blocks are shared until one side is written to
  copied,
};

/// Puts the first `size` bytes of `from` into `to`, which is empty. `step` is called with how many bytes are done after
/// each few megabytes, and may throw. Errc::busy if `from` ends earlier; no_space, io.
Copied copy_content(const Fd& from, const std::string& from_path, const Fd& to, const std::string& to_path,
                    std::uint64_t size, const std::function<void(std::uint64_t done)>& step);

/// Renames unless something is there already: then false, also if `from` is gone. Errors: io; unsupported across file
/// systems.
[[nodiscard]] bool rename_to_free_name(const std::string& from, const std::string& to);

}  // namespace ckpt::os
