// SPDX-License-Identifier: Apache-2.0
#include "ops/plot_tree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace ckpt::ops {
namespace {

constexpr std::size_t most_depth = 10;
constexpr std::size_t most_leaves = 2000;
/// Of one module's tensors and modules these many are drawn by themselves.
constexpr std::size_t most_children = 400;

struct Builder {
  PlotNode node;
  std::vector<std::size_t> children;  ///< in the list of builders
};

class TreeBuilder {
 public:
  TreeBuilder(std::size_t depth, bool whole) : depth_(depth), whole_(whole) { builders_.emplace_back(); }

  void add(const TensorDiff& tensor) {
    std::size_t at = 0;
    count(tensor, builders_[0].node);
    std::size_t begin = 0;
    const std::string_view name = tensor.name;
    for (std::size_t level = 1; begin <= name.size(); ++level) {
      const bool last = level == depth_;
      const std::size_t end = last ? name.size() : std::min(name.find('.', begin + 1), name.size());
      if (last && cut_) return;
      at = child(at, name.substr(0, end), name.substr(begin, end - begin));
      count(tensor, builders_[at].node);
      begin = end + 1;
    }
    PlotNode& leaf = builders_[at].node;
    leaf.about = fmt::format("{} [{}]", tensor.b ? tensor.dtype_b : tensor.dtype_a,
                             fmt::join(tensor.b ? tensor.shape_b : tensor.shape_a, ", "));
    leaf.odd = tensor.change != Change::same && tensor.a && tensor.b && !(tensor.numbers && tensor.has_values);
  }

  /// What lies deeper than the depth isn't drawn, and its module stands for it.
  void cut() { cut_ = true; }

  [[nodiscard]] std::size_t leaves() const {
    return static_cast<std::size_t>(
        std::count_if(builders_.begin(), builders_.end(), [](const Builder& b) { return b.children.empty(); }));
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

  std::size_t depth_;
  bool whole_;
  bool cut_ = false;
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

/// Keeps the most changed children, in their order, and one for all others.
void merge_many(PlotNode& node) {
  for (PlotNode& child : node.children) merge_many(child);
  if (node.children.size() <= most_children) return;
  const auto weight = [&](const PlotNode& child) {
    if (child.added + child.removed > 0 || child.odd) return std::numeric_limits<double>::infinity();
    return relative_change(child).value_or(child.differing > 0 ? 0 : -1);
  };
  std::vector<double> weights;
  for (const PlotNode& child : node.children) weights.push_back(weight(child));
  std::vector<double> sorted = weights;
  std::nth_element(sorted.begin(), sorted.begin() + most_children - 1, sorted.end(), std::greater<>());
  const double least = sorted[most_children - 1];
  std::vector<PlotNode> kept;
  PlotNode rest;
  for (std::size_t i = 0; i < node.children.size(); ++i) {
    PlotNode& child = node.children[i];
    if (weights[i] >= least && kept.size() + 1 < most_children) {
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

}  // namespace

PlotNode make_plot_tree(const DiffReport& report) {
  PlotNode tree;
  for (std::size_t depth = most_depth; depth > 0; --depth) {
    TreeBuilder builder(depth, report.whole);
    if (depth < most_depth) builder.cut();
    for (const TensorDiff& tensor : report.tensors) builder.add(tensor);
    if (builder.leaves() > most_leaves && depth > 2) continue;
    tree = builder.take();
    break;
  }
  join_single_children(tree);
  merge_many(tree);
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
