// SPDX-License-Identifier: Apache-2.0
// The text forms of protocol 0: decimal numbers, quoted strings, raw-unicode-escape. Pure functions; each gives
// nothing for a text that isn't of its form.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ckpt::source {

/// A decimal that fits 64 bits, with an optional sign.
[[nodiscard]] std::optional<std::int64_t> decimal(std::string_view text);
/// A decimal of up to 1,000 digits as two's complement, little-endian.
[[nodiscard]] std::optional<std::string> big_decimal(std::string_view text);
[[nodiscard]] std::optional<double> decimal_real(std::string_view text);
/// A quoted Python string with its escapes resolved.
[[nodiscard]] std::optional<std::string> unquote(std::string_view text);
/// Backslash-u escapes and Latin-1 bytes as UTF-8.
[[nodiscard]] std::optional<std::string> decode_raw_unicode(std::string_view text);
/// Appends a code point as UTF-8; surrogates as they are, as Python's surrogatepass does.
void append_utf8(std::string& to, std::uint32_t code_point);

}  // namespace ckpt::source
