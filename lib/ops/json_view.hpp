// SPDX-License-Identifier: Apache-2.0
// JSON as a tree that ValueWalk can walk.
#pragma once

#include "ops/value_walk.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ckpt::ops {

/// Stateless; the documents outlive their nodes.
class JsonView {
 public:
  using Node = const nlohmann::json*;

  [[nodiscard]] NodeShape shape(Node node) const;
  [[nodiscard]] std::string type(Node node) const;
  [[nodiscard]] std::string text(Node node) const;
  [[nodiscard]] bool same(Node node, const JsonView&, Node other) const { return *node == *other; }
  [[nodiscard]] std::vector<std::pair<std::string, Node>> children(Node node) const;
  [[nodiscard]] std::uint64_t identity(Node) const { return 0; }
};

/// Discarded (see its is_discarded()) if it's no JSON. Python's NaN, Infinity and -Infinity, which JSON has no numbers
/// for, become texts.
[[nodiscard]] nlohmann::json parse_json(std::string_view text);

}  // namespace ckpt::ops
