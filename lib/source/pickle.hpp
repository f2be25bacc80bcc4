// SPDX-License-Identifier: Apache-2.0
// What a pickle says, as plain data: nodes in one flat table, named by number, texts as views on the pickle's bytes.
//
// Nothing is ever called or imported. A class, known or not, is a `global` node; a call or an instance is an
// `object` node that keeps its arguments, its state and what was appended to it, so that a walk can look into
// all three. Nodes may form cycles.
#pragma once

#include "core/bytes.hpp"
#include "source/huge_table.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt::source {

using NodeId = std::uint32_t;
inline constexpr NodeId no_node = 0xffffffffU;

enum class NodeKind : std::uint32_t {
  none,
  boolean,
  integer,      ///< fits 64 bits
  big_integer,  ///< doesn't: see Pickle::big_integer()
  real,
  text,
  bytes,
  tuple,
  list,
  dict,
  set,
  global,      ///< a module and a name
  persistent,  ///< a persistent id: its operand is the id
  object,      ///< a class or function applied to arguments
  foreign,     ///< an extension code or an out-of-band buffer
};

/// One entry of a list, set or dict; `key` is no_node in lists and sets.
struct Cell {
  NodeId key = no_node;
  NodeId value = no_node;
  std::uint32_t next = no_node;
};

/// Read-only after read_pickle() made it; then thread-safe. Views point into the bytes that were read, which must
/// outlive it. Ids come from this table; accessors of another kind than the node's give empty answers.
class Pickle {
 public:
  [[nodiscard]] NodeId root() const { return root_; }
  [[nodiscard]] std::size_t node_count() const { return nodes_.size(); }
  /// Of what was read.
  [[nodiscard]] std::size_t byte_count() const { return source_.size(); }
  [[nodiscard]] NodeKind kind(NodeId id) const { return id == no_node ? NodeKind::none : nodes_[id].kind; }
  [[nodiscard]] bool is(NodeId id, NodeKind kind) const { return id != no_node && nodes_[id].kind == kind; }

  /// Of an integer or boolean; 0 for others.
  [[nodiscard]] std::int64_t integer(NodeId id) const;
  [[nodiscard]] double real(NodeId id) const;
  /// Of a text or bytes; for a big integer its two's complement, little-endian.
  [[nodiscard]] std::string_view text(NodeId id) const;
  /// Elements of a tuple.
  [[nodiscard]] std::span<const NodeId> items(NodeId id) const;
  /// The i-th element of a tuple, or no_node.
  [[nodiscard]] NodeId item(NodeId id, std::size_t i) const;

  /// First cell of a list, set or dict, and of what was appended to an object; no_node if there's none.
  [[nodiscard]] std::uint32_t first_cell(NodeId id) const;
  [[nodiscard]] const Cell& cell(std::uint32_t index) const { return cells_[index]; }
  /// The value under a text key of a dict; the last one if there are several. no_node if there's none. Meant for
  /// attributes: only the first 1,024 entries are looked at.
  [[nodiscard]] NodeId lookup(NodeId dict, std::string_view key) const;

  [[nodiscard]] std::string_view module(NodeId global) const;
  [[nodiscard]] std::string_view name(NodeId global) const;

  /// Of an object: what is applied; of a persistent node: the id.
  [[nodiscard]] NodeId callee(NodeId id) const;
  [[nodiscard]] NodeId args(NodeId object) const;
  [[nodiscard]] NodeId state(NodeId object) const;
  /// The value of an attribute in a state, be that a dict or a pair of dicts.
  [[nodiscard]] NodeId attribute_in(NodeId state, std::string_view key) const;
  /// The same of an object.
  [[nodiscard]] NodeId attribute(NodeId object, std::string_view key) const { return attribute_in(state(object), key); }

 private:
  friend class PickleReader;
  friend class PickleBuilder;

  // Twelve bytes, since there are about ten a tensor. What the words mean depends on the kind:
  //   integer, boolean, real  the value's halves
  //   text, bytes, big        offset, length; more: 1 if it's in decoded_
  //   tuple                   first, count in items_
  //   list, dict, set         first cell, last cell
  //   global                  module, name (text nodes)
  //   persistent              id
  //   object                  callee, args; more: 1 + index in extras_, or 0
  struct Node {
    NodeKind kind : 8;
    std::uint32_t more : 24;
    std::uint32_t word[2];
  };

  // What few objects have.
  struct Extra {
    NodeId state = no_node;
    NodeId contents = no_node;  ///< a hidden dict node that holds what was appended
  };

  [[nodiscard]] const Extra* extra(NodeId id) const {
    return is(id, NodeKind::object) && nodes_[id].more != 0 ? &extras_[nodes_[id].more - 1] : nullptr;
  }

  [[nodiscard]] std::int64_t wide(const Node& node) const;

  std::string_view source_;
  std::string decoded_;
  HugeTable<Node> nodes_;
  HugeTable<NodeId> items_;
  HugeTable<Cell> cells_;
  HugeTable<Extra> extras_;
  NodeId root_ = no_node;
};

}  // namespace ckpt::source
