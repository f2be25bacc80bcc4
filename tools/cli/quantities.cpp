// SPDX-License-Identifier: Apache-2.0
// Numbers with units, in and out. Anything left over after the number and its unit is an error.
#include "cli/quantities.hpp"

#include <fmt/format.h>
#include <ckpt/error.hpp>

#include <array>
#include <charconv>
#include <cmath>
#include <ctime>
#include <optional>
#include <utility>

namespace ckpt::cli {
namespace {

[[noreturn]] void refuse(std::string_view text, std::string_view wanted) {
  throw Error(Errc::invalid_argument, fmt::format("'{}' isn't {}", text, wanted));
}

std::optional<std::uint64_t> whole_number(std::string_view text, int base) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value, base);
  if (error != std::errc() || at != end) return std::nullopt;
  return value;
}

// A plain decimal fraction: no sign, no exponent, no "inf".
std::optional<double> plain_decimal(std::string_view text) {
  if (text.empty() || text.find_first_not_of("0123456789.") != std::string_view::npos) return std::nullopt;
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  if (error != std::errc() || at != end) return std::nullopt;
  return value;
}

// Takes the last letter off `text` if it's one of the units and gives its factor, else 1.
template <std::size_t N>
double take_unit(std::string_view& text, const std::array<std::pair<char, double>, N>& units) {
  for (const auto& [letter, factor] : units) {
    if (text.empty() || text.back() != letter) continue;
    text.remove_suffix(1);
    return factor;
  }
  return 1;
}

}  // namespace

std::uint64_t parse_number(std::string_view text, std::uint64_t low, std::uint64_t high) {
  const auto value = whole_number(text, 10);
  if (!value || *value < low || *value > high) {
    const bool open_ended = high == UINT64_MAX;
    refuse(text, open_ended ? fmt::format("a whole number of at least {}", low)
                            : fmt::format("a whole number from {} to {}", low, high));
  }
  return *value;
}

std::uint32_t parse_octal(std::string_view text, std::uint32_t high) {
  const auto value = whole_number(text, 8);
  if (!value || *value > high) refuse(text, fmt::format("an octal number up to {:o}", high));
  return static_cast<std::uint32_t>(*value);
}

std::uint64_t parse_size(std::string_view text) {
  static constexpr std::array<std::pair<char, double>, 4> units = {
      {{'K', 0x1p10}, {'M', 0x1p20}, {'G', 0x1p30}, {'T', 0x1p40}}};
  std::string_view digits = text;
  const double factor = take_unit(digits, units);
  const auto whole = whole_number(digits, 10);
  if (whole && factor == 1) return *whole;
  const auto value = plain_decimal(digits);
  if (!value || *value * factor >= 0x1p63) refuse(text, "a size in bytes, or with K, M, G or T (as 512M)");
  return static_cast<std::uint64_t>(std::llround(*value * factor));
}

double parse_duration(std::string_view text) {
  static constexpr std::array<std::pair<char, double>, 4> units = {{{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}}};
  std::string_view digits = text;
  const double factor = take_unit(digits, units);
  const auto value = plain_decimal(digits);
  if (!value) refuse(text, "a time in seconds, or with s, m, h or d (as 90m)");
  return *value * factor;
}

double parse_percent(std::string_view text) {
  std::string_view digits = text;
  if (digits.ends_with('%')) digits.remove_suffix(1);
  const auto value = plain_decimal(digits);
  if (!value || *value <= 0 || *value > 100) refuse(text, "a percentage above 0 and up to 100");
  return *value;
}

std::string human_bytes(std::uint64_t bytes) {
  static constexpr std::array<std::string_view, 7> units = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  // 1023.95 and more would print as 1024.0.
  while (value >= 1023.95 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, units[unit]);
}

std::string human_duration(double seconds) {
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  if (seconds > 1e9) return "ages";
  const auto whole = static_cast<std::uint64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
  return fmt::format("{} d {:02} h", whole / 86400, whole / 3600 % 24);
}

std::string rfc3339_utc(std::int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  if (gmtime_r(&time, &parts) == nullptr) return fmt::format("@{}", seconds);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min, parts.tm_sec);
}

std::string rfc3339_utc_ns(std::int64_t nanoseconds) {
  constexpr std::int64_t second = 1'000'000'000;
  const std::int64_t rest = (nanoseconds % second + second) % second;
  std::string text = rfc3339_utc((nanoseconds - rest) / second);
  if (rest == 0 || text.back() != 'Z') return text;
  text.pop_back();
  return text + fmt::format(".{:09}Z", rest);
}

}  // namespace ckpt::cli
