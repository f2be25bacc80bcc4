// SPDX-License-Identifier: Apache-2.0
// Decoding of protocol 0's text operands. Rare in checkpoints, so plain rather than fast.
#include "source/pickle_literals.hpp"

#include <charconv>

namespace ckpt::source {
namespace {

std::optional<std::uint32_t> hex_digits(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::int64_t> decimal(std::string_view text) {
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::string> big_decimal(std::string_view text) {
  const bool negative = !text.empty() && text.front() == '-';
  if (negative) text.remove_prefix(1);
  // Quadratic below, so bounded.
  if (text.empty() || text.size() > 1000) return std::nullopt;
  std::string bytes(1, '\0');
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    unsigned carry = static_cast<unsigned>(c - '0');
    for (char& byte : bytes) {
      const unsigned value = static_cast<unsigned char>(byte) * 10U + carry;
      byte = static_cast<char>(value & 0xffU);
      carry = value >> 8U;
    }
    if (carry != 0) bytes.push_back(static_cast<char>(carry));
  }
  bytes.push_back('\0');
  if (!negative) return bytes;
  unsigned carry = 1;
  for (char& byte : bytes) {
    const unsigned value = (~static_cast<unsigned>(static_cast<unsigned char>(byte)) & 0xffU) + carry;
    byte = static_cast<char>(value & 0xffU);
    carry = value >> 8U;
  }
  return bytes;
}

std::optional<double> decimal_real(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size() || error == std::errc::invalid_argument) return std::nullopt;
  return value;
}

std::optional<std::string> unquote(std::string_view text) {
  if (text.size() < 2 || (text.front() != '\'' && text.front() != '"') || text.back() != text.front()) {
    return std::nullopt;
  }
  text = text.substr(1, text.size() - 2);
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out.push_back(text[i]);
      continue;
    }
    ++i;
    switch (text[i]) {
      case 'n': out.push_back('\n'); break;
      case 't': out.push_back('\t'); break;
      case 'r': out.push_back('\r'); break;
      case 'x': {
        const auto value = hex_digits(text.substr(i + 1, 2));
        if (!value || i + 2 >= text.size()) return std::nullopt;
        out.push_back(static_cast<char>(*value));
        i += 2;
        break;
      }
      default: out.push_back(text[i]);
    }
  }
  return out;
}

std::optional<std::string> decode_raw_unicode(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '\\' && i + 1 < text.size() && (text[i + 1] == 'u' || text[i + 1] == 'U');
    if (!escape) {
      append_utf8(out, static_cast<unsigned char>(text[i]));
      continue;
    }
    const std::size_t digits = text[i + 1] == 'u' ? 4 : 8;
    if (text.size() - i - 2 < digits) return std::nullopt;
    const auto value = hex_digits(text.substr(i + 2, digits));
    if (!value || *value > 0x10ffff) return std::nullopt;
    append_utf8(out, *value);
    i += digits + 1;
  }
  return out;
}

void append_utf8(std::string& to, std::uint32_t code_point) {
  const auto put = [&](std::uint32_t byte) { to.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) return put(code_point);
  if (code_point < 0x800) {
    put(0xc0U | code_point >> 6U);
    return put(0x80U | (code_point & 0x3fU));
  }
  if (code_point < 0x10000) {
    put(0xe0U | code_point >> 12U);
    put(0x80U | (code_point >> 6U & 0x3fU));
    return put(0x80U | (code_point & 0x3fU));
  }
  put(0xf0U | code_point >> 18U);
  put(0x80U | (code_point >> 12U & 0x3fU));
  put(0x80U | (code_point >> 6U & 0x3fU));
  put(0x80U | (code_point & 0x3fU));
}

}  // namespace ckpt::source
