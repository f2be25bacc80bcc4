// SPDX-License-Identifier: Apache-2.0
// Times as RFC 3339 UTC, to the second.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ckpt::format {

/// "2026-01-31T12:00:00Z"
[[nodiscard]] std::string rfc3339(std::int64_t seconds_since_epoch);
/// Exactly the form that rfc3339() writes, or nothing.
[[nodiscard]] std::optional<std::int64_t> from_rfc3339(std::string_view text);

}  // namespace ckpt::format
