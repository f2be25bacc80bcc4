// SPDX-License-Identifier: Apache-2.0
// How much memory this process may still take.
#pragma once

#include <cstdint>
#include <string>

namespace ckpt::capture {

/// The least of what the system has available and what the process's control groups, of either version, leave of their
/// limits. `root` is put before every path: tests have a tree of their own. 0 if nothing can be told.
[[nodiscard]] std::uint64_t available_memory(const std::string& root = "");

}  // namespace ckpt::capture
