// SPDX-License-Identifier: Apache-2.0
// Any bytes as plain ASCII, as in URLs: for paths in JSON, which can hold only UTF-8.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ckpt {

/// Bytes outside printable ASCII, spaces, quotes, backslashes and '%' become %XX.
[[nodiscard]] std::string percent_encode(std::string_view bytes);
/// Nothing if a '%' isn't followed by two hex digits.
[[nodiscard]] std::optional<std::string> percent_decode(std::string_view text);

}  // namespace ckpt
