// SPDX-License-Identifier: Apache-2.0
// Numbers as users write and read them: SIZE, RATE, TIME, AGE, PERCENT.
//
// Parsers throw Errc::invalid_argument with a message that quotes the text; the caller adds which option it was.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ckpt::cli {

/// Decimal digits only, in [low, high].
[[nodiscard]] std::uint64_t parse_number(std::string_view text, std::uint64_t low, std::uint64_t high);

/// Octal digits only, at most `high`.
[[nodiscard]] std::uint32_t parse_octal(std::string_view text, std::uint32_t high);

/// SIZE and RATE: bytes, or with K, M, G or T after the number (powers of 1024). A fraction is allowed: 1.5G.
[[nodiscard]] std::uint64_t parse_size(std::string_view text);

/// TIME and AGE: seconds, or with s, m, h or d after the number. A fraction is allowed: 1.5h.
[[nodiscard]] double parse_duration(std::string_view text);

/// PERCENT: above 0, at most 100; a '%' may follow.
[[nodiscard]] double parse_percent(std::string_view text);

[[nodiscard]] std::string human_bytes(std::uint64_t bytes);   ///< "1.5 GiB"
[[nodiscard]] std::string human_duration(double seconds);     ///< "1 h 05 min"
[[nodiscard]] std::string rfc3339_utc(std::int64_t seconds);  ///< "2026-01-31T10:00:00Z"
[[nodiscard]] std::string rfc3339_utc_ns(std::int64_t nanoseconds);

}  // namespace ckpt::cli
