// SPDX-License-Identifier: Apache-2.0
// getenv with types: empty counts as unset, as scripts mean it.
#include "cli/environment.hpp"

#include <fmt/format.h>
#include <ckpt/error.hpp>

#include <cstdlib>

#include "cli/quantities.hpp"

namespace ckpt::cli {

std::optional<std::string> environment_text(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::optional<std::uint64_t> environment_number(const char* name, std::uint64_t low, std::uint64_t high) {
  const auto text = environment_text(name);
  if (!text) return std::nullopt;
  try {
    return parse_number(*text, low, high);
  } catch (const Error& error) {
    throw Error(Errc::invalid_argument, fmt::format("environment variable {}: {}", name, error.what()));
  }
}

std::optional<std::int64_t> source_date_epoch() {
  constexpr std::uint64_t year_9999 = 253'402'300'799;
  const auto seconds = environment_number("SOURCE_DATE_EPOCH", 0, year_9999);
  if (!seconds) return std::nullopt;
  return static_cast<std::int64_t>(*seconds);
}

}  // namespace ckpt::cli
