// SPDX-License-Identifier: Apache-2.0
// Asks the kernel what of a file is in the page cache, without reading anything into it.
#pragma once

#include "os/fd.hpp"

#include <cstdint>

namespace ckpt::os {

/// True if every page of the range is cached, and where the kernel doesn't tell.
[[nodiscard]] bool is_cached(const Fd& fd, std::uint64_t offset, std::uint64_t size);

}  // namespace ckpt::os
