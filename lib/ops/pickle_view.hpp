// SPDX-License-Identifier: Apache-2.0
// A pickle as a tree that ValueWalk can walk: attributes, entries and arguments of an object are its children.
#pragma once

#include "ops/value_walk.hpp"
#include "source/pickle.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ckpt::ops {

/// `pickle` outlives it. Thread-safe.
class PickleView {
 public:
  using Node = source::NodeId;
  using Children = std::vector<std::pair<std::string, Node>>;

  explicit PickleView(const source::Pickle& pickle) : pickle_(pickle) {}

  [[nodiscard]] NodeShape shape(Node node) const;
  [[nodiscard]] std::string type(Node node) const;
  [[nodiscard]] std::string text(Node node) const;
  [[nodiscard]] bool same(Node node, const PickleView& other, Node other_node) const;
  [[nodiscard]] Children children(Node node) const;
  [[nodiscard]] std::uint64_t identity(Node node) const { return std::uint64_t{node} + 1; }

 private:
  [[nodiscard]] std::string key_text(Node key) const;
  [[nodiscard]] bool is_plain(Node node, unsigned depth) const;
  [[nodiscard]] bool is_value(Node object) const;
  [[nodiscard]] bool is_numpy_scalar(Node object) const;
  [[nodiscard]] std::string value_text(Node object) const;
  void add_cells(Node node, Children& to) const;
  void add_state(Node state, Children& to) const;
  void add_pairs(Node list, Children& to) const;
  void add_object(Node object, Children& to) const;
  void add_tensor(Node object, Children& to) const;

  const source::Pickle& pickle_;
};

}  // namespace ckpt::ops
