// SPDX-License-Identifier: Apache-2.0
// Fills a Pickle's tables and keeps them within the limits. The commonest values (None, True, False, small numbers,
// the empty tuple) are one shared node each, since a checkpoint names them once for every tensor.
#pragma once

#include "source/pickle_reader.hpp"

#include <array>
#include <span>
#include <string>
#include <string_view>

namespace ckpt::source {

/// Ends reading; never leaves read_pickle().
struct PickleFault {
  PickleStatus status;
  std::string message;
};

class PickleBuilder {
 public:
  explicit PickleBuilder(ByteView data);

  [[nodiscard]] NodeId none() const { return none_; }
  [[nodiscard]] NodeId boolean(bool value) const { return value ? true_ : false_; }
  [[nodiscard]] NodeId empty_tuple() const { return empty_tuple_; }
  NodeId integer(std::int64_t value);
  NodeId real(double value);
  /// Text, bytes or a big integer that stands in the data as it is.
  NodeId view(NodeKind kind, std::size_t offset, std::size_t size);
  /// The same, decoded.
  NodeId owned(NodeKind kind, std::string_view content);
  NodeId tuple(std::span<const NodeId> elements);
  NodeId container(NodeKind kind) { return add(kind); }
  NodeId global(NodeId module, NodeId name);
  NodeId object(NodeId callee, NodeId args);
  NodeId persistent(NodeId id) { return add(NodeKind::persistent, id); }
  NodeId foreign() { return add(NodeKind::foreign); }

  /// Appends to a list, set, dict or object; does nothing to other nodes.
  void append(NodeId to, NodeId key, NodeId value);
  void set_state(NodeId object, NodeId state);

  Pickle finish(NodeId root);

 private:
  NodeId add(NodeKind kind, std::uint32_t a = no_node, std::uint32_t b = no_node, std::uint32_t more = 0);
  Pickle::Extra& extra(NodeId object);

  static constexpr std::int64_t shared_integers = 256;
  Pickle pickle_;
  NodeId none_ = no_node;
  NodeId true_ = no_node;
  NodeId false_ = no_node;
  NodeId empty_tuple_ = no_node;
  NodeId first_integer_ = no_node;
};

}  // namespace ckpt::source
