// SPDX-License-Identifier: Apache-2.0
#include "ops/json_view.hpp"

#include "ops/shortened.hpp"

namespace ckpt::ops {

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

}  // namespace ckpt::ops
