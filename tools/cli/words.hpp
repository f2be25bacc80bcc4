// SPDX-License-Identifier: Apache-2.0
// A command line inside an option.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ckpt::cli {

/// Splits at spaces; '…' and "…" keep them, a backslash outside of '…' takes the next character as it is. Nothing else
/// is special. Throws Errc::invalid_argument for a quote that isn't closed.
[[nodiscard]] std::vector<std::string> split_words(std::string_view text);

}  // namespace ckpt::cli
