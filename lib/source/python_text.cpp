// SPDX-License-Identifier: Apache-2.0
// Python's str() and repr() of plain values. The length is bounded at every step, since shared tuples can stand
// for an exponentially long text.
#include "source/python_text.hpp"

#include "source/pickle_literals.hpp"

#include <charconv>
#include <cmath>

namespace ckpt::source {
namespace {

constexpr unsigned deepest_nesting = 32;

std::string text_of_real(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto scientific = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  std::string text(buffer, scientific.ptr);
  const std::size_t e = text.find('e');
  const int exponent = static_cast<int>(decimal(std::string_view(text).substr(e + 1)).value_or(0));
  if (exponent < -4 || exponent >= 16) return text;
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed);
  text.assign(buffer, fixed.ptr);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

/// Two's complement, little-endian, to decimal.
std::string text_of_big_integer(std::string_view bytes) {
  // Quadratic below; no real key is this long.
  if (bytes.size() > 256) return "(big integer)";
  std::string magnitude(bytes);
  const bool negative = !bytes.empty() && (static_cast<unsigned char>(bytes.back()) & 0x80U) != 0;
  if (negative) {
    unsigned carry = 1;
    for (char& byte : magnitude) {
      const unsigned value = (~static_cast<unsigned>(static_cast<unsigned char>(byte)) & 0xffU) + carry;
      byte = static_cast<char>(value & 0xffU);
      carry = value >> 8U;
    }
  }
  std::string reversed;
  while (!magnitude.empty()) {
    unsigned rest = 0;
    for (std::size_t i = magnitude.size(); i-- > 0;) {
      const unsigned value = rest << 8U | static_cast<unsigned char>(magnitude[i]);
      magnitude[i] = static_cast<char>(value / 10);
      rest = value % 10;
    }
    reversed.push_back(static_cast<char>('0' + rest));
    while (!magnitude.empty() && magnitude.back() == '\0') magnitude.pop_back();
  }
  if (reversed.empty()) reversed = "0";
  if (negative) reversed.push_back('-');
  return {reversed.rbegin(), reversed.rend()};
}

std::string quoted(std::string_view text, bool bytes) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  constexpr std::string_view hex = "0123456789abcdef";
  std::string out = bytes ? "b" : "";
  out.push_back(quote);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == quote || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f || (bytes && byte >= 0x80)) {
      out += "\\x";
      out.push_back(hex[byte >> 4U]);
      out.push_back(hex[byte & 0xfU]);
    } else {
      out.push_back(c);
    }
  }
  out.push_back(quote);
  return out;
}

class Writer {
 public:
  explicit Writer(const Pickle& pickle) : pickle_(pickle) {}

  bool repr(NodeId id, unsigned depth) {
    if (depth > deepest_nesting) return false;
    switch (pickle_.kind(id)) {
      case NodeKind::text:
      case NodeKind::bytes:
        if (pickle_.text(id).size() > max_key_text) return false;
        return put(quoted(pickle_.text(id), pickle_.is(id, NodeKind::bytes)));
      case NodeKind::none: return put("None");
      case NodeKind::boolean: return put(pickle_.integer(id) != 0 ? "True" : "False");
      case NodeKind::integer: return put(std::to_string(pickle_.integer(id)));
      case NodeKind::big_integer: return put(text_of_big_integer(pickle_.text(id)));
      case NodeKind::real: return put(text_of_real(pickle_.real(id)));
      case NodeKind::tuple: return sequence(id, depth);
      case NodeKind::global: return put_class(id);
      case NodeKind::object: return put(pickle_.name(pickle_.callee(id))) && sequence(pickle_.args(id), depth);
      default: return put("...");
    }
  }

  bool put(std::string_view text) {
    if (text.size() > max_key_text - out_.size()) return false;
    out_ += text;
    return true;
  }

  std::string take() { return std::move(out_); }

 private:
  bool sequence(NodeId tuple, unsigned depth) {
    const auto items = pickle_.items(tuple);
    if (!put("(")) return false;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0 && !put(", ")) return false;
      if (!repr(items[i], depth + 1)) return false;
    }
    return put(items.size() == 1 ? ",)" : ")");
  }

  bool put_class(NodeId id) {
    // torch.float32 and its like are values, not classes.
    const bool value = pickle_.module(id) == "torch" && !pickle_.name(id).ends_with("Storage");
    if (value) return put("torch.") && put(pickle_.name(id));
    return put("<class '") && put(pickle_.module(id)) && put(".") && put(pickle_.name(id)) && put("'>");
  }

  const Pickle& pickle_;
  std::string out_;
};

}  // namespace

std::optional<std::string> python_str(const Pickle& pickle, NodeId id) {
  Writer writer(pickle);
  const bool plain = pickle.is(id, NodeKind::text);
  if (!(plain ? writer.put(pickle.text(id)) : writer.repr(id, 0))) return std::nullopt;
  return writer.take();
}

}  // namespace ckpt::source
