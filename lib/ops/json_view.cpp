// SPDX-License-Identifier: Apache-2.0
#include "ops/json_view.hpp"

#include "ops/shortened.hpp"

namespace ckpt::ops {
namespace {

/// The text with quotes around Python's words for numbers.
std::string with_words_quoted(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 64);
  bool quoted = false;
  while (!text.empty()) {
    std::size_t size = 1;
    if (quoted) {
      if (text.front() == '\\' && text.size() > 1) size = 2;
      quoted = text.front() != '"';
    } else {
      quoted = text.front() == '"';
      for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
        if (!text.starts_with(word)) continue;
        out += '"';
        out += word;
        out += '"';
        text.remove_prefix(word.size());
        size = 0;
        break;
      }
    }
    out += text.substr(0, size);
    text.remove_prefix(size);
  }
  return out;
}

}  // namespace

NodeShape JsonView::shape(Node node) const {
  if (node->is_object()) return NodeShape::map;
  return node->is_array() ? NodeShape::sequence : NodeShape::scalar;
}

std::string JsonView::type(Node node) const { return node->type_name(); }

std::string JsonView::text(Node node) const {
  return shortened(node->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

std::vector<std::pair<std::string, JsonView::Node>> JsonView::children(Node node) const {
  std::vector<std::pair<std::string, Node>> found;
  found.reserve(node->size());
  if (node->is_object()) {
    for (const auto& [key, value] : node->items()) found.emplace_back(key, &value);
  } else if (node->is_array()) {
    for (std::size_t i = 0; i < node->size(); ++i) found.emplace_back(std::to_string(i), &(*node)[i]);
  }
  return found;
}

nlohmann::json parse_json(std::string_view text) {
  auto parsed = nlohmann::json::parse(text, nullptr, false);
  const bool has_words = text.find("NaN") != std::string_view::npos || text.find("Infinity") != std::string_view::npos;
  if (parsed.is_discarded() && has_words) parsed = nlohmann::json::parse(with_words_quoted(text), nullptr, false);
  return parsed;
}

}  // namespace ckpt::ops
