// SPDX-License-Identifier: Apache-2.0
#include "format/rfc3339.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <chrono>

namespace ckpt::format {
namespace {

/// Years that four digits can write.
constexpr std::int64_t earliest = -62167219200;  // 0000-01-01
constexpr std::int64_t latest = 253402300799;    // 9999-12-31T23:59:59

std::optional<int> digits(std::string_view text) {
  int value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value;
}

}  // namespace

std::string rfc3339(std::int64_t seconds) {
  using namespace std::chrono;
  const sys_seconds time{std::chrono::seconds(std::clamp(seconds, earliest, latest))};
  const auto day = floor<days>(time);
  const year_month_day date(day);
  const hh_mm_ss clock(time - day);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), clock.hours().count(),
                     clock.minutes().count(), clock.seconds().count());
}

std::optional<std::int64_t> from_rfc3339(std::string_view text) {
  using namespace std::chrono;
  if (text.size() != 20 || text[4] != '-' || text[7] != '-' || text[10] != 'T' || text[13] != ':' || text[16] != ':' ||
      text[19] != 'Z') {
    return std::nullopt;
  }
  const auto y = digits(text.substr(0, 4)), mo = digits(text.substr(5, 2)), d = digits(text.substr(8, 2));
  const auto h = digits(text.substr(11, 2)), mi = digits(text.substr(14, 2)), s = digits(text.substr(17, 2));
  if (!y || !mo || !d || !h || !mi || !s || *h > 23 || *mi > 59 || *s > 59) return std::nullopt;
  const year_month_day date{year(*y), month(static_cast<unsigned>(*mo)), day(static_cast<unsigned>(*d))};
  if (!date.ok()) return std::nullopt;
  return duration_cast<seconds>(sys_days(date).time_since_epoch() + hours(*h) + minutes(*mi) + seconds(*s)).count();
}

}  // namespace ckpt::format
