// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ckpt/export.hpp>

namespace ckpt {

/// The library's version, e.g. "0.1.0". A constant string.
[[nodiscard]] CKPT_API const char* version();

/// The highest on-disk format that this library reads and the one that it writes, e.g. "1.0".
[[nodiscard]] CKPT_API const char* format_version();

}  // namespace ckpt
