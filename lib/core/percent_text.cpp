// SPDX-License-Identifier: Apache-2.0
#include "core/percent_text.hpp"

#include <charconv>

namespace ckpt {

std::string percent_encode(std::string_view bytes) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte > 0x20 && byte < 0x7F && c != '%' && c != '"' && c != '\\') {
      text += c;
    } else {
      text += {'%', digits[byte >> 4U], digits[byte & 15U]};
    }
  }
  return text;
}

std::optional<std::string> percent_decode(std::string_view text) {
  std::string bytes;
  while (!text.empty()) {
    if (text.front() != '%') {
      bytes += text.front();
      text.remove_prefix(1);
      continue;
    }
    const std::string_view hex = text.substr(1, 2);
    unsigned value = 0;
    const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
    if (hex.size() != 2 || error != std::errc() || end != hex.data() + 2) return std::nullopt;
    bytes += static_cast<char>(value);
    text.remove_prefix(3);
  }
  return bytes;
}

}  // namespace ckpt
