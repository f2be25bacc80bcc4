// SPDX-License-Identifier: Apache-2.0
// An object whose arguments are plain (a dtype, a date, a path, an enum's member) is a scalar and reads as the call
// that makes it; numpy's scalars read as the numbers they are.
#include "ops/pickle_view.hpp"

#include "core/digest.hpp"
#include "ops/shortened.hpp"
#include "source/python_text.hpp"
#include "source/torch_types.hpp"

#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>

namespace ckpt::ops {
namespace {

using source::Cell;
using source::no_node;
using source::NodeId;
using source::NodeKind;
using source::Pickle;
using source::Rebuild;

constexpr unsigned most_plain_depth = 4;

Rebuild rebuild_of(const Pickle& pickle, NodeId object) {
  const NodeId callee = pickle.callee(object);
  if (!pickle.is(callee, NodeKind::global)) return Rebuild::unknown;
  return source::rebuild_of(pickle.module(callee), pickle.name(callee));
}

bool makes_tensor(Rebuild kind) { return kind != Rebuild::unknown && kind < Rebuild::content; }

template <class T>
std::string number_text(std::string_view bytes) {
  T value{};
  std::memcpy(&value, bytes.data(), sizeof value);
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  return {buffer, end};
}

/// A numpy scalar of a type like 'f8' as the number; nothing if it isn't one of these.
std::optional<std::string> numpy_text(std::string_view type, std::string_view bytes) {
  const std::size_t width = bytes.size();
  if (type == "f8" && width == 8) return number_text<double>(bytes);
  if (type == "f4" && width == 4) return number_text<float>(bytes);
  if (type == "i8" && width == 8) return number_text<std::int64_t>(bytes);
  if (type == "i4" && width == 4) return number_text<std::int32_t>(bytes);
  if (type == "u8" && width == 8) return number_text<std::uint64_t>(bytes);
  if (type == "u4" && width == 4) return number_text<std::uint32_t>(bytes);
  if (type == "b1" && width == 1) return bytes[0] != 0 ? "True" : "False";
  return std::nullopt;
}

}  // namespace

NodeShape PickleView::shape(Node node) const {
  switch (pickle_.kind(node)) {
    case NodeKind::tuple:
    case NodeKind::list: return NodeShape::sequence;
    case NodeKind::dict:
    case NodeKind::set: return NodeShape::map;
    case NodeKind::persistent: return NodeShape::tensor;
    case NodeKind::object:
      if (makes_tensor(rebuild_of(pickle_, node))) return NodeShape::tensor;
      return is_value(node) ? NodeShape::scalar : NodeShape::map;
    default: return NodeShape::scalar;
  }
}

std::string PickleView::type(Node node) const {
  switch (pickle_.kind(node)) {
    case NodeKind::tuple: return "tuple";
    case NodeKind::list: return "list";
    case NodeKind::dict: return "dict";
    case NodeKind::set: return "set";
    case NodeKind::object: break;
    default: return "value";
  }
  NodeId callee = pickle_.callee(node);
  const NodeId first = pickle_.item(pickle_.args(node), 0);
  if (rebuild_of(pickle_, node) == Rebuild::reconstructor && pickle_.is(first, NodeKind::global)) callee = first;
  const std::string name(pickle_.name(callee));
  return name.empty() ? "object" : name;
}

bool PickleView::is_plain(Node node, unsigned depth) const {
  switch (pickle_.kind(node)) {
    case NodeKind::tuple:
      if (depth == 0 || pickle_.items(node).size() > 64) return false;
      for (const NodeId item : pickle_.items(node)) {
        if (!is_plain(item, depth - 1)) return false;
      }
      return true;
    case NodeKind::list:
    case NodeKind::dict:
    case NodeKind::set:
    case NodeKind::persistent:
    case NodeKind::object: return false;
    default: return true;
  }
}

bool PickleView::is_numpy_scalar(Node object) const {
  const NodeId callee = pickle_.callee(object);
  return pickle_.name(callee) == "scalar" && pickle_.module(callee).starts_with("numpy");
}

bool PickleView::is_value(Node object) const {
  if (pickle_.first_cell(object) != no_node || !pickle_.is(pickle_.callee(object), NodeKind::global)) return false;
  const NodeId args = pickle_.args(object);
  if (is_numpy_scalar(object)) {
    const NodeId type = pickle_.item(args, 0);
    return pickle_.is(type, NodeKind::object) && pickle_.is(pickle_.callee(type), NodeKind::global) &&
           is_plain(pickle_.args(type), most_plain_depth) && is_plain(pickle_.state(type), most_plain_depth) &&
           is_plain(pickle_.item(args, 1), 0) && pickle_.state(object) == no_node;
  }
  // One without arguments is what its state says, and mostly a container.
  if (pickle_.items(args).empty() || !is_plain(args, most_plain_depth)) return false;
  return pickle_.state(object) == no_node || pickle_.is(pickle_.state(object), NodeKind::none) ||
         (pickle_.is(pickle_.state(object), NodeKind::tuple) && is_plain(pickle_.state(object), most_plain_depth));
}

std::string PickleView::value_text(Node object) const {
  const NodeId args = pickle_.args(object);
  if (is_numpy_scalar(object)) {
    const NodeId type = pickle_.item(pickle_.args(pickle_.item(args, 0)), 0);
    if (auto number = numpy_text(pickle_.text(type), pickle_.text(pickle_.item(args, 1)))) return *number;
  }
  if (pickle_.items(args).size() == 1) {
    std::string text = type(object) + "(" + this->text(pickle_.item(args, 0)) + ")";
    return text;
  }
  return type(object) + source::python_str(pickle_, args).value_or("(...)");
}

std::string PickleView::text(Node node) const {
  if (pickle_.is(node, NodeKind::object) && shape(node) == NodeShape::scalar) return shortened(value_text(node));
  if (pickle_.is(node, NodeKind::foreign)) return "(foreign)";
  constexpr std::size_t most_text = 1000;
  const bool quoted = pickle_.is(node, NodeKind::text) || pickle_.is(node, NodeKind::bytes);
  if (quoted && pickle_.text(node).size() > most_text) {
    const std::string_view content = pickle_.text(node);
    return (pickle_.is(node, NodeKind::text) ? "text" : "bytes") + (" of " + std::to_string(content.size())) +
           ", xxh128 " + to_hex(xxh3_128(content));
  }
  if (pickle_.is(node, NodeKind::text)) return "'" + shortened(pickle_.text(node)) + "'";
  return shortened(source::python_str(pickle_, node).value_or("(long)"));
}

bool PickleView::same(Node node, const PickleView& other, Node other_node) const {
  const NodeKind kind = pickle_.kind(node);
  if (kind != other.pickle_.kind(other_node)) return false;
  switch (kind) {
    case NodeKind::none: return true;
    case NodeKind::boolean:
    case NodeKind::integer: return pickle_.integer(node) == other.pickle_.integer(other_node);
    case NodeKind::real: {
      const double x = pickle_.real(node);
      const double y = other.pickle_.real(other_node);
      return x == y || (std::isnan(x) && std::isnan(y));
    }
    case NodeKind::big_integer:
    case NodeKind::text:
    case NodeKind::bytes: return pickle_.text(node) == other.pickle_.text(other_node);
    case NodeKind::global:
      return pickle_.name(node) == other.pickle_.name(other_node) &&
             pickle_.module(node) == other.pickle_.module(other_node);
    case NodeKind::tuple: {
      const auto x = pickle_.items(node);
      const auto y = other.pickle_.items(other_node);
      if (x.size() != y.size()) return false;
      for (std::size_t i = 0; i < x.size(); ++i) {
        if (!same(x[i], other, y[i])) return false;
      }
      return true;
    }
    case NodeKind::object: {
      // A value: its callee, arguments and state are plain, but for numpy's type, which is a value itself.
      return same(pickle_.callee(node), other, other.pickle_.callee(other_node)) &&
             same(pickle_.args(node), other, other.pickle_.args(other_node)) &&
             same(pickle_.state(node), other, other.pickle_.state(other_node));
    }
    default: return kind == NodeKind::foreign;
  }
}

std::string PickleView::key_text(Node key) const {
  const auto text = source::python_str(pickle_, key);
  std::string out = text ? *text : "(long key)";
  // A key that's an object may say nothing of itself by its arguments.
  const NodeId name = pickle_.attribute(key, "fqn");
  if (pickle_.is(name, NodeKind::text)) out = pickle_.text(name);
  return out;
}

void PickleView::add_cells(Node node, Children& to) const {
  const bool set = pickle_.is(node, NodeKind::set);
  std::size_t index = 0;
  for (std::uint32_t at = pickle_.first_cell(node); at != no_node; at = pickle_.cell(at).next) {
    const Cell& cell = pickle_.cell(at);
    if (cell.key != no_node) {
      to.emplace_back(key_text(cell.key), cell.value);
    } else {
      to.emplace_back(set ? text(cell.value) : std::to_string(index), cell.value);
    }
    ++index;
  }
}

void PickleView::add_state(Node state, Children& to) const {
  if (state == no_node || pickle_.is(state, NodeKind::none)) return;
  if (pickle_.is(state, NodeKind::dict)) return add_cells(state, to);
  const auto items = pickle_.items(state);
  const auto is_part = [&](NodeId id) { return pickle_.is(id, NodeKind::none) || pickle_.is(id, NodeKind::dict); };
  if (items.size() == 2 && is_part(items[0]) && is_part(items[1])) {
    for (const NodeId part : items) add_cells(part, to);
    return;
  }
  to.emplace_back("(state)", state);
}

void PickleView::add_pairs(Node list, Children& to) const {
  for (std::uint32_t at = pickle_.first_cell(list); at != no_node; at = pickle_.cell(at).next) {
    const NodeId pair = pickle_.cell(at).value;
    const std::uint32_t first = pickle_.first_cell(pair);
    const std::uint32_t second = first == no_node ? no_node : pickle_.cell(first).next;
    const NodeId key = second == no_node ? pickle_.item(pair, 0) : pickle_.cell(first).value;
    const NodeId value = second == no_node ? pickle_.item(pair, 1) : pickle_.cell(second).value;
    to.emplace_back(key_text(key), value);
  }
}

void PickleView::add_object(Node object, Children& to) const {
  if (!pickle_.is(pickle_.callee(object), NodeKind::global)) to.emplace_back("(callee)", pickle_.callee(object));
  add_cells(object, to);
  add_state(pickle_.state(object), to);
  const Rebuild kind = rebuild_of(pickle_, object);
  const auto args = pickle_.items(pickle_.args(object));
  for (std::size_t i = 0; i < args.size(); ++i) {
    const bool is_list = pickle_.is(args[i], NodeKind::list);
    if (kind == Rebuild::pairs && is_list) {
      add_pairs(args[i], to);
    } else if ((kind == Rebuild::pairs || kind == Rebuild::content) && pickle_.is(args[i], NodeKind::dict)) {
      add_cells(args[i], to);
    } else {
      to.emplace_back("(" + std::to_string(i) + ")", args[i]);
    }
  }
}

void PickleView::add_tensor(Node object, Children& to) const {
  const NodeId args = pickle_.args(object);
  const NodeId state = pickle_.state(object);
  switch (rebuild_of(pickle_, object)) {
    case Rebuild::tensor:
    case Rebuild::tensor_v3: to.emplace_back("requires_grad", pickle_.item(args, 4)); break;
    case Rebuild::quantized:
      to.emplace_back("quantizer", pickle_.item(args, 4));
      to.emplace_back("requires_grad", pickle_.item(args, 5));
      break;
    case Rebuild::parameter:
    case Rebuild::parameter_state:
      to.emplace_back("requires_grad", pickle_.item(args, 1));
      to.emplace_back("(data)", pickle_.item(args, 0));
      add_state(pickle_.item(args, 3), to);
      break;
    case Rebuild::from_type:
      to.emplace_back("(class)", pickle_.item(args, 1));
      add_state(pickle_.item(args, 3), to);
      break;
    case Rebuild::wrapper_subclass: to.emplace_back("(class)", pickle_.item(args, 0)); break;
    default: break;
  }
  add_state(state, to);
}

PickleView::Children PickleView::children(Node node) const {
  Children found;
  switch (pickle_.kind(node)) {
    case NodeKind::tuple: {
      const auto items = pickle_.items(node);
      for (std::size_t i = 0; i < items.size(); ++i) found.emplace_back(std::to_string(i), items[i]);
      break;
    }
    case NodeKind::list:
    case NodeKind::dict:
    case NodeKind::set: add_cells(node, found); break;
    case NodeKind::object:
      if (makes_tensor(rebuild_of(pickle_, node))) {
        add_tensor(node, found);
      } else {
        add_object(node, found);
      }
      break;
    default: break;
  }
  return found;
}

}  // namespace ckpt::ops
