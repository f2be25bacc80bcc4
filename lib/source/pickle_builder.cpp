// SPDX-License-Identifier: Apache-2.0
// The one place where a pickle's tables grow, and so where they are bounded.
#include "source/pickle_builder.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace ckpt::source {
namespace {

void check_room(std::size_t size, std::size_t more = 1) {
  if (more <= max_pickle_nodes && size <= max_pickle_nodes - more) return;
  throw PickleFault{PickleStatus::refused, "the pickle holds too many values"};
}

constexpr std::uint32_t low(std::uint64_t value) { return static_cast<std::uint32_t>(value & 0xffffffffU); }
constexpr std::uint32_t high(std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32U); }

}  // namespace

PickleBuilder::PickleBuilder(ByteView data) {
  pickle_.source_ = as_text(data);
  // More than any pickle of tensors needs, so that the tables never move; memory that isn't touched costs nothing.
  pickle_.nodes_.reserve(std::min(data.size() / 6 + 300, max_pickle_nodes));
  pickle_.items_.reserve(std::min(data.size() / 5, max_pickle_nodes));
  pickle_.cells_.reserve(std::min(data.size() / 16, max_pickle_nodes));
  none_ = add(NodeKind::none);
  false_ = add(NodeKind::boolean, 0, 0);
  true_ = add(NodeKind::boolean, 1, 0);
  empty_tuple_ = add(NodeKind::tuple, 0, 0);
  first_integer_ = static_cast<NodeId>(pickle_.nodes_.size());
  for (std::int64_t i = 0; i < shared_integers; ++i) add(NodeKind::integer, static_cast<std::uint32_t>(i), 0);
}

NodeId PickleBuilder::add(NodeKind kind, std::uint32_t a, std::uint32_t b, std::uint32_t more) {
  check_room(pickle_.nodes_.size());
  Pickle::Node node;
  node.kind = kind;
  node.more = more & 0xffffffU;
  node.word[0] = a;
  node.word[1] = b;
  pickle_.nodes_.push_back(node);
  return static_cast<NodeId>(pickle_.nodes_.size() - 1);
}

Pickle::Extra& PickleBuilder::extra(NodeId object) {
  Pickle::Node& node = pickle_.nodes_[object];
  if (node.more == 0) {
    check_room(pickle_.extras_.size());
    pickle_.extras_.push_back({});
    node.more = static_cast<std::uint32_t>(pickle_.extras_.size()) & 0xffffffU;
  }
  return pickle_.extras_[node.more - 1];
}

NodeId PickleBuilder::integer(std::int64_t value) {
  if (value >= 0 && value < shared_integers) return first_integer_ + static_cast<NodeId>(value);
  const auto bits = static_cast<std::uint64_t>(value);
  return add(NodeKind::integer, low(bits), high(bits));
}

NodeId PickleBuilder::real(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  return add(NodeKind::real, low(bits), high(bits));
}

NodeId PickleBuilder::view(NodeKind kind, std::size_t offset, std::size_t size) {
  return add(kind, static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(size), 0);
}

NodeId PickleBuilder::owned(NodeKind kind, std::string_view content) {
  const std::size_t offset = pickle_.decoded_.size();
  pickle_.decoded_.append(content);
  return add(kind, static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(content.size()), 1);
}

NodeId PickleBuilder::tuple(std::span<const NodeId> elements) {
  if (elements.empty()) return empty_tuple_;
  const std::size_t first = pickle_.items_.size();
  check_room(first, elements.size());
  pickle_.items_.insert(pickle_.items_.end(), elements.begin(), elements.end());
  return add(NodeKind::tuple, static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(elements.size()));
}

NodeId PickleBuilder::global(NodeId module, NodeId name) { return add(NodeKind::global, module, name); }

NodeId PickleBuilder::object(NodeId callee, NodeId args) { return add(NodeKind::object, callee, args); }

void PickleBuilder::append(NodeId to, NodeId key, NodeId value) {
  NodeId target = to;
  switch (pickle_.kind(to)) {
    case NodeKind::list:
    case NodeKind::dict:
    case NodeKind::set: break;
    case NodeKind::object:
      target = extra(to).contents;
      if (target == no_node) {
        target = add(NodeKind::dict);
        extra(to).contents = target;
      }
      break;
    default: return;
  }
  check_room(pickle_.cells_.size());
  const auto index = static_cast<std::uint32_t>(pickle_.cells_.size());
  pickle_.cells_.push_back({key, value, no_node});
  auto& [first, last] = pickle_.nodes_[target].word;
  if (first == no_node) {
    first = index;
  } else {
    pickle_.cells_[last].next = index;
  }
  last = index;
}

void PickleBuilder::set_state(NodeId object, NodeId state) {
  if (pickle_.is(object, NodeKind::object)) extra(object).state = state;
}

Pickle PickleBuilder::finish(NodeId root) {
  pickle_.root_ = root;
  return std::move(pickle_);
}

}  // namespace ckpt::source
