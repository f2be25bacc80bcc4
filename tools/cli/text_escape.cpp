// SPDX-License-Identifier: Apache-2.0
// One walk over UTF-8 serves all of these: the length of the sequence that starts here, or 0 where none does.
#include "cli/text_escape.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace ckpt::cli {
namespace {

std::uint8_t octet(char c) { return static_cast<std::uint8_t>(c); }

std::size_t sequence_length(std::string_view text, std::size_t at) {
  const std::uint8_t lead = octet(text[at]);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() - at < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((octet(text[at + i]) & 0xC0) != 0x80) return 0;
  }
  const std::uint8_t second = octet(text[at + 1]);
  const bool overlong = (lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90);
  const bool surrogate = lead == 0xED && second >= 0xA0;
  const bool too_high = lead == 0xF4 && second >= 0x90;
  return overlong || surrogate || too_high ? 0 : length;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::uint8_t value = octet(text[at]);
    const bool control = value < 0x20 || value == 0x7F;
    const bool long_control = value == 0xC2 && at + 1 < text.size() && octet(text[at + 1]) < 0xA0;
    if (text[at] == '\n') {
      out += "\\n";
    } else if (text[at] == '\t') {
      out += "\\t";
    } else if (long_control) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", octet(text[++at]));
    } else if (control) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", value);
    } else {
      out += text[at];
    }
  }
  return out;
}

std::string tsv_escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '\t': out += "\\t"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\\': out += "\\\\"; break;
      default: out += c;
    }
  }
  return out;
}

bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = sequence_length(text, at);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = sequence_length(text, at);
    const char c = text[at];
    if (length == 0) {
      out += "\xEF\xBF\xBD";
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (octet(c) < 0x20 || octet(c) == 0x7F) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", octet(c));
    } else {
      out.append(text.substr(at, length));
    }
    at += length == 0 ? 1 : length;
  }
  out += '"';
}

std::string base64(std::string_view bytes) {
  static constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t have = std::min<std::size_t>(3, bytes.size() - at);
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < 3; ++i) group = group << 8 | (i < have ? octet(bytes[at + i]) : 0U);
    for (std::size_t i = 0; i < 4; ++i) out += i <= have ? digits[group >> (18 - 6 * i) & 63U] : '=';
  }
  return out;
}

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  for (const char c : text) width += (octet(c) & 0xC0) != 0x80 ? 1U : 0U;
  return width;
}

}  // namespace ckpt::cli
