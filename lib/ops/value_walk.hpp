// SPDX-License-Identifier: Apache-2.0
// Walks two trees of plain values side by side and says where they differ. What a tree is made of (a pickle, JSON) is
// behind a View; nodes of a pickle may be shared and form cycles, so a pair of containers is looked into once, and all
// work is bounded.
//
// A View has
//   Node                          what names a node; cheap to copy
//   shape(node)                   see NodeShape
//   type(node)                    "dict", "list", a class
//   text(node)                    a scalar as one line, shortened
//   same(node, other view, node)  of two scalars
//   children(node)                key and node of each child, in order
//   identity(node)                a number that is equal for the same node only, or 0 if nodes can't be shared
#pragma once

#include "ops/shortened.hpp"

#include <ckpt/diff.hpp>
#include <ckpt/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace ckpt::ops {

enum class NodeShape {
  scalar,
  map,       ///< children are known by their keys
  sequence,  ///< children are known by their place
  tensor,    ///< compared elsewhere; its children are what isn't
};

/// Change, path, old and new value.
using ValueSink = std::function<void(Change, const std::string&, std::string, std::string)>;

template <class View>
class ValueWalk {
 public:
  using Node = typename View::Node;

  ValueWalk(const View& a, const View& b, std::string prefix, ValueSink sink)
      : a_(a), b_(b), prefix_(std::move(prefix)), sink_(std::move(sink)) {}

  void run(Node a, Node b) {
    visit(a, b, top);
    while (!steps_.empty()) {
      const Step step = steps_.back();
      steps_.pop_back();
      expand(step);
    }
  }

 private:
  static constexpr std::uint32_t top = 0xffffffffU;
  static constexpr std::size_t most_steps = std::size_t{2} << 20U;
  /// Sequences of scalars that are longer, with more differences than these, are one difference.
  static constexpr std::size_t long_sequence = 16;
  static constexpr std::size_t listed_items = 4;
  /// Of a deeper path the end alone is told.
  static constexpr std::size_t most_keys = 64;

  /// A pair of containers, and where it is.
  struct Step {
    Node a;
    Node b;
    std::uint32_t path;
  };
  struct PathPart {
    std::uint32_t above;
    std::string key;
  };
  using Children = std::vector<std::pair<std::string, Node>>;

  [[nodiscard]] std::string path_of(std::uint32_t part, std::string_view key = {}) const {
    std::vector<std::string_view> keys;
    if (!key.empty()) keys.push_back(key);
    for (; part != top && keys.size() < most_keys; part = parts_[part].above) keys.push_back(parts_[part].key);
    std::string path = part == top ? prefix_ : "...";
    for (std::size_t i = keys.size(); i-- > 0;) {
      if (!path.empty()) path += '.';
      path += shortened(keys[i]);
    }
    return path.empty() ? "(root)" : path;
  }

  static std::string summary(const View& view, Node node) {
    const NodeShape shape = view.shape(node);
    if (shape == NodeShape::scalar) return view.text(node);
    if (shape == NodeShape::tensor) return "(a tensor)";
    const Children children = view.children(node);
    constexpr std::size_t shown = 6;
    std::string items;
    for (std::size_t i = 0; i < children.size(); ++i) {
      if (view.shape(children[i].second) != NodeShape::scalar) {
        return view.type(node) + " of " + std::to_string(children.size());
      }
      if (i > shown) continue;
      if (i > 0) items += ", ";
      if (i == shown) items += "...";
      if (i == shown) continue;
      if (shape == NodeShape::map) items += children[i].first + ": ";
      items += view.text(children[i].second);
    }
    const bool map = shape == NodeShape::map;
    const std::string text = (map ? "{" : "[") + items + (map ? "}" : "]");
    return children.size() > shown ? view.type(node) + " of " + std::to_string(children.size()) + ": " + text : text;
  }

  void visit(Node a, Node b, std::uint32_t above, std::string_view key = {}) {
    const NodeShape x = a_.shape(a);
    const NodeShape y = b_.shape(b);
    if (x == NodeShape::scalar && y == NodeShape::scalar) {
      if (!a_.same(a, b_, b)) sink_(Change::changed, path_of(above, key), a_.text(a), b_.text(b));
      return;
    }
    const bool alike = x == y && (x == NodeShape::tensor || a_.type(a) == b_.type(b));
    if (!alike) {
      std::string old_value = summary(a_, a);
      std::string new_value = summary(b_, b);
      if (old_value == new_value) {
        old_value = a_.type(a) + " " + old_value;
        new_value = b_.type(b) + " " + new_value;
      }
      sink_(Change::changed, path_of(above, key), std::move(old_value), std::move(new_value));
      if (x != y) return;
    }
    const std::uint64_t id_a = a_.identity(a);
    const std::uint64_t id_b = b_.identity(b);
    if (id_a != 0 && !visited_.insert(id_a << 32U | id_b).second) return;
    if (steps_.size() + visited_.size() > most_steps) {
      throw Error(Errc::unsupported, "the values at '" + path_of(above, key) + "' are too entangled to be compared");
    }
    std::uint32_t path = above;
    if (!key.empty()) {
      path = static_cast<std::uint32_t>(parts_.size());
      parts_.push_back({above, shortened(key)});
    }
    steps_.push_back({a, b, path});
  }

  void expand(const Step& step) {
    const Children from = a_.children(step.a);
    const Children to = b_.children(step.b);
    const bool in_place = a_.shape(step.a) == NodeShape::sequence;
    if (in_place && is_one_difference(step, from, to)) return;

    // Keys that read alike (1 and '1') pair in their order.
    constexpr std::size_t none = static_cast<std::size_t>(-1);
    std::unordered_map<std::string_view, std::size_t> at;
    std::vector<std::size_t> next(to.size(), none);
    for (std::size_t i = to.size(); i-- > 0;) {
      const auto [place, is_new] = at.emplace(to[i].first, i);
      if (!is_new) next[i] = std::exchange(place->second, i);
    }
    std::vector<bool> met(to.size());
    std::size_t first_step = steps_.size();
    for (const auto& [key, node] : from) {
      const auto found = at.find(key);
      if (found == at.end() || found->second == none) {
        lone(Change::removed, a_, node, step.path, key, scanned_a_);
        continue;
      }
      const std::size_t partner = std::exchange(found->second, next[found->second]);
      met[partner] = true;
      visit(node, to[partner].second, step.path, key);
    }
    for (std::size_t i = 0; i < to.size(); ++i) {
      if (!met[i]) lone(Change::added, b_, to[i].second, step.path, to[i].first, scanned_b_);
    }
    // The last one is looked at first.
    for (std::size_t last = steps_.size(); first_step + 1 < last; ++first_step)
      std::swap(steps_[first_step], steps_[--last]);
  }

  /// A long list of numbers (a random generator's state, say) is one value, not hundreds.
  bool is_one_difference(const Step& step, const Children& from, const Children& to) {
    if (std::max(from.size(), to.size()) <= long_sequence) return false;
    std::size_t different = 0;
    for (std::size_t i = 0; i < std::max(from.size(), to.size()); ++i) {
      if (i < from.size() && a_.shape(from[i].second) != NodeShape::scalar) return false;
      if (i < to.size() && b_.shape(to[i].second) != NodeShape::scalar) return false;
      const bool both = i < from.size() && i < to.size();
      different += both && a_.same(from[i].second, b_, to[i].second) ? 0U : 1U;
    }
    if (different <= listed_items) return false;
    sink_(Change::changed, path_of(step.path), summary(a_, step.a), summary(b_, step.b));
    return true;
  }

  /// What one side alone has. Tensors are told of elsewhere, and so are containers of nothing but tensors.
  void lone(Change change, const View& view, Node node, std::uint32_t above, const std::string& key,
            std::unordered_set<std::uint64_t>& scanned) {
    if (!has_values(view, node, scanned)) return;
    std::string text = summary(view, node);
    sink_(change, path_of(above, key), change == Change::removed ? text : std::string(),
          change == Change::added ? text : std::string());
  }

  static bool has_values(const View& view, Node node, std::unordered_set<std::uint64_t>& scanned) {
    std::vector<Node> waiting{node};
    bool has_tensors = false;
    while (!waiting.empty()) {
      const Node next = waiting.back();
      waiting.pop_back();
      const NodeShape shape = view.shape(next);
      if (shape == NodeShape::scalar) return true;
      if (shape == NodeShape::tensor) {
        has_tensors = true;
        continue;
      }
      const std::uint64_t id = view.identity(next);
      if (id != 0 && !scanned.insert(id).second) continue;
      for (const auto& child : view.children(next)) waiting.push_back(child.second);
    }
    return !has_tensors;
  }

  const View& a_;
  const View& b_;
  std::string prefix_;
  ValueSink sink_;
  std::vector<Step> steps_;
  std::vector<PathPart> parts_;
  std::unordered_set<std::uint64_t> visited_;
  std::unordered_set<std::uint64_t> scanned_a_;
  std::unordered_set<std::uint64_t> scanned_b_;
};

}  // namespace ckpt::ops
