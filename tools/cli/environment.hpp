// SPDX-License-Identifier: Apache-2.0
// The environment: read here and nowhere else. A malformed value is an error that names its variable.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ckpt::cli {

/// The variable's value; nothing if it's unset or empty.
[[nodiscard]] std::optional<std::string> environment_text(const char* name);

/// A decimal number in [low, high]; nothing if the variable is unset or empty. Throws Errc::invalid_argument.
[[nodiscard]] std::optional<std::uint64_t> environment_number(const char* name, std::uint64_t low, std::uint64_t high);

/// SOURCE_DATE_EPOCH in seconds.
[[nodiscard]] std::optional<std::int64_t> source_date_epoch();

}  // namespace ckpt::cli
