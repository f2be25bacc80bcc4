// SPDX-License-Identifier: Apache-2.0
// Accessors of the node table. Each gives an empty answer for a node of another kind: what an untrusted pickle
// puts where something else was expected is never an error here.
#include "source/pickle.hpp"

#include <bit>

namespace ckpt::source {

std::int64_t Pickle::wide(const Node& node) const {
  return static_cast<std::int64_t>(std::uint64_t{node.word[0]} | std::uint64_t{node.word[1]} << 32U);
}

std::int64_t Pickle::integer(NodeId id) const {
  if (!is(id, NodeKind::integer) && !is(id, NodeKind::boolean)) return 0;
  return wide(nodes_[id]);
}

double Pickle::real(NodeId id) const { return is(id, NodeKind::real) ? std::bit_cast<double>(wide(nodes_[id])) : 0.0; }

std::string_view Pickle::text(NodeId id) const {
  if (!is(id, NodeKind::text) && !is(id, NodeKind::bytes) && !is(id, NodeKind::big_integer)) return {};
  const Node& node = nodes_[id];
  const std::string_view from = node.more == 1 ? std::string_view(decoded_) : source_;
  return from.substr(node.word[0], node.word[1]);
}

std::span<const NodeId> Pickle::items(NodeId id) const {
  if (!is(id, NodeKind::tuple)) return {};
  return std::span(items_).subspan(nodes_[id].word[0], nodes_[id].word[1]);
}

NodeId Pickle::item(NodeId id, std::size_t i) const {
  const auto all = items(id);
  return i < all.size() ? all[i] : no_node;
}

std::uint32_t Pickle::first_cell(NodeId id) const {
  switch (kind(id)) {
    case NodeKind::list:
    case NodeKind::dict:
    case NodeKind::set: return nodes_[id].word[0];
    case NodeKind::object: {
      const Extra* const found = extra(id);
      return found == nullptr || found->contents == no_node ? no_node : nodes_[found->contents].word[0];
    }
    default: return no_node;
  }
}

NodeId Pickle::lookup(NodeId dict, std::string_view key) const {
  NodeId found = no_node;
  // A hostile pickle could otherwise make every tensor search one huge dict.
  std::size_t left = 1024;
  for (std::uint32_t at = first_cell(dict); at != no_node && left > 0; at = cells_[at].next, --left) {
    if (is(cells_[at].key, NodeKind::text) && text(cells_[at].key) == key) found = cells_[at].value;
  }
  return found;
}

std::string_view Pickle::module(NodeId global) const {
  return is(global, NodeKind::global) ? text(nodes_[global].word[0]) : std::string_view{};
}

std::string_view Pickle::name(NodeId global) const {
  return is(global, NodeKind::global) ? text(nodes_[global].word[1]) : std::string_view{};
}

NodeId Pickle::callee(NodeId id) const {
  return is(id, NodeKind::object) || is(id, NodeKind::persistent) ? nodes_[id].word[0] : no_node;
}

NodeId Pickle::args(NodeId object) const { return is(object, NodeKind::object) ? nodes_[object].word[1] : no_node; }

NodeId Pickle::state(NodeId object) const {
  const Extra* const found = extra(object);
  return found == nullptr ? no_node : found->state;
}

NodeId Pickle::attribute_in(NodeId state, std::string_view key) const {
  if (!is(state, NodeKind::tuple)) return lookup(state, key);
  if (items(state).size() != 2) return no_node;
  const NodeId found = lookup(item(state, 1), key);
  return found != no_node ? found : lookup(item(state, 0), key);
}

}  // namespace ckpt::source
