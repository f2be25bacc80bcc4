// SPDX-License-Identifier: Apache-2.0
// Names hold any bytes but NUL. These make them safe for a terminal, a tab-separated line and a JSON string.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ckpt::cli {

/// For people: control characters, also those of eight bits, become \n, \t or \xHH. Other bytes stay.
[[nodiscard]] std::string printable(std::string_view text);

/// For tsv: tab, newline, carriage return and backslash become \t, \n, \r and \\.
[[nodiscard]] std::string tsv_escaped(std::string_view text);

[[nodiscard]] bool is_utf8(std::string_view text);

/// Appends a JSON string with its quotes; what isn't UTF-8 becomes U+FFFD.
void append_json_string(std::string& out, std::string_view text);

[[nodiscard]] std::string base64(std::string_view bytes);

/// Columns that a text takes on a terminal, by count of its code points.
[[nodiscard]] std::size_t display_width(std::string_view text);

}  // namespace ckpt::cli
