// SPDX-License-Identifier: Apache-2.0
#include "ops/plot_tree.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace ckpt::ops {
namespace {

constexpr std::size_t most_depth = 10;
/// More rows than these are too low to be seen on a page.
constexpr std::size_t most_leaves = 600;
/// Of more tensors and modules in one module only some are drawn by themselves.
constexpr std::size_t many_children = 128;
constexpr std::size_t kept_children = 60;

struct Builder {
  PlotNode node;
  std::vector<std::size_t> children;  ///< in the list of builders
};

class TreeBuilder {
 public:
  explicit TreeBuilder(bool whole) : whole_(whole) { builders_.emplace_back(); }

  void add(const TensorDiff& tensor) {
    std::size_t at = 0;
    count(tensor, builders_[0].node);
    std::size_t begin = 0;
    const std::string_view name = tensor.name;
    for (std::size_t level = 1; begin <= name.size(); ++level) {
      const bool last = level == most_depth;
      const std::size_t end = last ? name.size() : std::min(name.find('.', begin + 1), name.size());
      at = child(at, name.substr(0, end), name.substr(begin, end - begin));
      count(tensor, builders_[at].node);
      begin = end + 1;
    }
    PlotNode& leaf = builders_[at].node;
    leaf.about = fmt::format("{} [{}]", tensor.b ? tensor.dtype_b : tensor.dtype_a,
                             fmt::join(tensor.b ? tensor.shape_b : tensor.shape_a, ", "));
    leaf.odd = tensor.change != Change::same && tensor.a && tensor.b && !(tensor.numbers && tensor.has_values);
  }

  PlotNode take(std::size_t at = 0) {
    PlotNode node = std::move(builders_[at].node);
    for (const std::size_t child : builders_[at].children) node.children.push_back(take(child));
    return node;
  }

 private:
  void count(const TensorDiff& tensor, PlotNode& to) const {
    ++to.tensors;
    to.differing += tensor.change == Change::same ? 0U : 1U;
    to.added += tensor.change == Change::added ? 1U : 0U;
    to.removed += tensor.change == Change::removed ? 1U : 0U;
    to.elements += tensor.elements;
    if (!tensor.numbers || !tensor.has_values) return;
    to.numbers += *tensor.numbers;
    to.weighed += tensor.elements;
    const double change = relative_change(tensor, whole_).value_or(0);
    to.weighed_squares += static_cast<double>(tensor.elements) * change * change;
  }

  std::size_t child(std::size_t of, std::string_view name, std::string_view key) {
    const auto found = by_name_.find(std::string(name));
    if (found != by_name_.end()) return found->second;
    const std::size_t index = builders_.size();
    by_name_.emplace(name, index);
    builders_.emplace_back();
    builders_.back().node.key = key;
    builders_.back().node.name = name;
    builders_[of].children.push_back(index);
    return index;
  }

  bool whole_;
  std::vector<Builder> builders_;
  std::unordered_map<std::string, std::size_t> by_name_;
};

void join_single_children(PlotNode& node) {
  while (node.children.size() == 1 && !node.key.empty()) {
    PlotNode child = std::move(node.children.front());
    child.key = node.key + "." + child.key;
    node = std::move(child);
  }
  for (PlotNode& child : node.children) join_single_children(child);
}

/// Large where the picture should show more.
double interest_of(const PlotNode& node) {
  if (node.added + node.removed > 0 || node.odd) return std::numeric_limits<double>::infinity();
  return relative_change(node).value_or(node.differing > 0 ? 0 : -1);
}

/// Keeps the most changed children, in their order, and one for all others.
void merge_many(PlotNode& node) {
  for (PlotNode& child : node.children) merge_many(child);
  if (node.children.size() <= many_children) return;
  std::vector<double> weights;
  for (const PlotNode& child : node.children) {
    // A module is worth more than any tensor beside it.
    constexpr double of_module = 1e6;
    weights.push_back(interest_of(child) + (child.is_leaf() ? 0 : of_module));
  }
  std::vector<double> sorted = weights;
  std::nth_element(sorted.begin(), sorted.begin() + kept_children - 1, sorted.end(), std::greater<>());
  const double least = sorted[kept_children - 1];
  std::vector<PlotNode> kept;
  PlotNode rest;
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    PlotNode& child = node.children[i];
    if (weights[i] >= least && kept.size() < kept_children) {
      kept.push_back(std::move(child));
      continue;
    }
    rest.tensors += child.tensors;
    rest.differing += child.differing;
    rest.added += child.added;
    rest.removed += child.removed;
    rest.elements += child.elements;
    rest.numbers += child.numbers;
    rest.weighed += child.weighed;
    rest.weighed_squares += child.weighed_squares;
  }
  rest.key = fmt::format("({} more)", node.children.size() - kept.size());
  rest.name = node.name + (node.name.empty() ? "" : ".") + rest.key;
  kept.push_back(std::move(rest));
  node.children = std::move(kept);
}

/// Opens modules level by level, the most changed ones first, as long as there's room. The others stand for what they
/// hold.
void open_modules(PlotNode& root) {
  std::size_t leaves = 1;
  std::vector<PlotNode*> level{&root};
  while (!level.empty()) {
    std::stable_sort(level.begin(), level.end(),
                     [](const PlotNode* a, const PlotNode* b) { return interest_of(*a) > interest_of(*b); });
    std::vector<PlotNode*> next;
    for (PlotNode* node : level) {
      if (node->is_leaf()) continue;
      if (leaves + node->children.size() > most_leaves + 1) {
        node->children.clear();
        continue;
      }
      leaves += node->children.size() - 1;
      for (PlotNode& child : node->children) next.push_back(&child);
    }
    level = std::move(next);
  }
}

}  // namespace

PlotNode make_plot_tree(const DiffReport& report) {
  TreeBuilder builder(report.whole);
  for (const TensorDiff& tensor : report.tensors) builder.add(tensor);
  PlotNode tree = builder.take();
  join_single_children(tree);
  merge_many(tree);
  open_modules(tree);
  return tree;
}

std::optional<double> relative_change(const TensorDiff& tensor, bool whole) {
  if (!tensor.numbers || !tensor.has_values) return std::nullopt;
  const DiffNumbers& numbers = *tensor.numbers;
  const double relative = numbers.relative_l2();
  // From nothing to something: all of it is new.
  if (!std::isfinite(relative)) return 1;
  if (whole || numbers.elements == 0) return relative;
  return relative * std::sqrt(static_cast<double>(numbers.changed) / static_cast<double>(numbers.elements));
}

std::optional<double> relative_change(const PlotNode& node) {
  if (node.numbers.changed == 0 || node.weighed == 0) return std::nullopt;
  return std::sqrt(node.weighed_squares / static_cast<double>(node.weighed));
}

}  // namespace ckpt::ops
