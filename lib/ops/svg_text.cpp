// SPDX-License-Identifier: Apache-2.0
#include "ops/svg_text.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace ckpt::ops {
namespace {

constexpr double em_per_character = 0.62;
constexpr std::string_view replacement = "\xef\xbf\xbd";
constexpr std::string_view gap = "\xe2\x80\xa6";

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xc0U) == 0x80U; }

/// Bytes of the character that `text` begins with; 0 if that's none that XML has.
std::size_t character_size(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  if (lead < 0x80) return lead >= 0x20 || lead == '\n' || lead == '\t' ? 1 : 0;
  const std::size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < size) return 0;
  for (std::size_t i = 1; i < size; ++i) {
    if (!continues(text[i])) return 0;
  }
  const auto second = static_cast<unsigned char>(text[1]);
  // Overlong forms, surrogates, beyond the last code point, and the two that aren't characters.
  if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second >= 0xa0)) return 0;
  if ((lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second >= 0x90)) return 0;
  if (lead == 0xef && second == 0xbf && static_cast<unsigned char>(text[2]) >= 0xbe) return 0;
  return size;
}

/// Where each character begins.
std::vector<std::size_t> begins_of(std::string_view text) {
  std::vector<std::size_t> begins;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!continues(text[i])) begins.push_back(i);
  }
  return begins;
}

}  // namespace

std::string xml_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t size = character_size(text);
    switch (size == 1 ? text.front() : 'x') {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += size == 0 ? replacement : text.substr(0, size);
    }
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return out;
}

double text_width(std::string_view text, double font_size) {
  const auto characters = text.size() - static_cast<std::size_t>(std::count_if(text.begin(), text.end(), continues));
  return static_cast<double>(characters) * font_size * em_per_character;
}

std::string fitting(std::string_view text, double width, double font_size) {
  if (text_width(text, font_size) <= width) return std::string(text);
  const std::vector<std::size_t> begins = begins_of(text);
  const auto room = static_cast<std::size_t>(std::max(0.0, width / (font_size * em_per_character)));
  if (room < 4 || room >= begins.size()) return {};
  const std::size_t front = room / 2;
  const std::size_t back = room - 1 - front;
  return std::string(text.substr(0, begins[front])) + std::string(gap) +
         std::string(text.substr(begins[begins.size() - back]));
}

std::string ending(std::string_view text, double width, double font_size) {
  if (text_width(text, font_size) <= width) return std::string(text);
  const std::vector<std::size_t> begins = begins_of(text);
  const auto room = static_cast<std::size_t>(std::max(2.0, width / (font_size * em_per_character)));
  if (room > begins.size()) return std::string(text);
  return std::string(gap) + std::string(text.substr(begins[begins.size() - (room - 1)]));
}

}  // namespace ckpt::ops
