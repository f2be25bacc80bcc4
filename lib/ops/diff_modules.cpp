// SPDX-License-Identifier: Apache-2.0
// Sums over the tensors of each module: every prefix of a name that ends before a dot.
#include <ckpt/diff.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

namespace ckpt {
namespace {

/// Names are compared key by key, and numbers by value: layers.2 comes before layers.10, and a.b before a-b.
struct KeyByKey {
  using is_transparent = void;

  static int compare_keys(std::string_view a, std::string_view b) {
    const auto is_number = [](std::string_view key) {
      return !key.empty() && key.find_first_not_of("0123456789") == std::string_view::npos;
    };
    if (is_number(a) != is_number(b)) return is_number(a) ? -1 : 1;
    if (is_number(a) && a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
    return a.compare(b);
  }

  bool operator()(std::string_view a, std::string_view b) const {
    while (true) {
      // The empty prefix comes before all.
      if (a.empty() || b.empty()) return a.empty() && !b.empty();
      const std::size_t end_a = std::min(a.find('.'), a.size());
      const std::size_t end_b = std::min(b.find('.'), b.size());
      const int order = compare_keys(a.substr(0, end_a), b.substr(0, end_b));
      if (order != 0) return order < 0;
      if (end_a == a.size() || end_b == b.size()) return end_a == a.size() && end_b < b.size();
      a.remove_prefix(end_a + 1);
      b.remove_prefix(end_b + 1);
    }
  }
};

void add(const TensorDiff& tensor, ModuleDiff& to) {
  ++to.tensors;
  to.differing += tensor.change == Change::same ? 0U : 1U;
  to.added += tensor.change == Change::added ? 1U : 0U;
  to.removed += tensor.change == Change::removed ? 1U : 0U;
  to.bytes += tensor.bytes;
  if (tensor.numbers && tensor.has_values) to.numbers += *tensor.numbers;
}

}  // namespace

std::vector<ModuleDiff> sum_by_module(const DiffReport& report) {
  std::map<std::string, ModuleDiff, KeyByKey> modules;
  for (const TensorDiff& tensor : report.tensors) {
    const std::string_view name = tensor.name;
    unsigned depth = 0;
    std::size_t end = 0;
    while (end != std::string_view::npos) {
      const std::string_view prefix = name.substr(0, end);
      auto found = modules.find(prefix);
      if (found == modules.end()) {
        found = modules.emplace(prefix, ModuleDiff{.prefix = std::string(prefix), .depth = depth}).first;
      }
      add(tensor, found->second);
      // A dot at the very front belongs to the first key.
      end = name.find('.', end + 1);
      ++depth;
    }
  }
  std::vector<ModuleDiff> sums;
  sums.reserve(modules.size());
  for (auto& [prefix, sum] : modules) sums.push_back(std::move(sum));
  return sums;
}

}  // namespace ckpt
