// SPDX-License-Identifier: Apache-2.0
// Texts from files that can be of any length, made fit for a report.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ckpt::ops {

/// At most `most` bytes, cut at a character, with dots for the rest.
[[nodiscard]] inline std::string shortened(std::string_view text, std::size_t most = 200) {
  if (text.size() <= most) return std::string(text);
  std::size_t end = most;
  const auto continues = [&](std::size_t at) { return (static_cast<unsigned char>(text[at]) & 0xc0U) == 0x80U; };
  while (end > 0 && continues(end)) --end;
  return std::string(text.substr(0, end)) + "...";
}

}  // namespace ckpt::ops
