// SPDX-License-Identifier: Apache-2.0
// Tensors, modules, values and files share their columns, in this order, documented in ckpt-output(5): new ones go to
// the end.
#include "diff_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <utility>

#include "diff_tables.hpp"

namespace ckpt::cli {
namespace {

struct Columns {
  std::string_view what;
  FieldValue change, name, file_a, file_b, rank_a, rank_b, dtype_a, dtype_b, shape_a, shape_b, offsets, elements,
      changed, max_abs, mean_abs, l2, relative_l2, cosine, nan_a, nan_b, inf_a, inf_b, old_value, new_value, size_a,
      size_b, changed_bytes, tensors, differing;

  [[nodiscard]] Record record() const {
    return {"difference",
            {{"what", std::string(what)},
             {"change", change},
             {"name", name},
             {"file_a", file_a},
             {"file_b", file_b},
             {"rank_a", rank_a},
             {"rank_b", rank_b},
             {"dtype_a", dtype_a},
             {"dtype_b", dtype_b},
             {"shape_a", shape_a},
             {"shape_b", shape_b},
             {"global_offsets", offsets},
             {"elements", elements},
             {"changed", changed},
             {"max_abs", max_abs},
             {"mean_abs", mean_abs},
             {"l2", l2},
             {"relative_l2", relative_l2},
             {"cosine", cosine},
             {"nan_a", nan_a},
             {"nan_b", nan_b},
             {"inf_a", inf_a},
             {"inf_b", inf_b},
             {"old", old_value},
             {"new", new_value},
             {"size_a", size_a},
             {"size_b", size_b},
             {"changed_bytes", changed_bytes},
             {"tensors", tensors},
             {"differing", differing}}};
  }
};

void put_places(const std::optional<DiffPlace>& a, const std::optional<DiffPlace>& b, Columns& to) {
  if (a) to.file_a = a->file;
  if (a) to.rank_a = std::uint64_t{a->rank};
  if (b) to.file_b = b->file;
  if (b) to.rank_b = std::uint64_t{b->rank};
}

void put_numbers(const DiffNumbers& numbers, bool has_values, Columns& to) {
  to.changed = numbers.changed;
  if (!has_values) return;
  to.max_abs = numbers.max_abs;
  to.mean_abs = numbers.mean_abs();
  to.l2 = numbers.l2();
  to.relative_l2 = numbers.relative_l2();
  to.cosine = field_of(numbers.cosine());
  to.nan_a = numbers.nan_a;
  to.nan_b = numbers.nan_b;
  to.inf_a = numbers.inf_a;
  to.inf_b = numbers.inf_b;
}

Record record_of(const TensorDiff& tensor) {
  Columns columns{.what = "tensor", .change = std::string(to_string(tensor.change)), .name = tensor.name};
  put_places(tensor.a, tensor.b, columns);
  columns.dtype_a = text_or_none(tensor.dtype_a);
  columns.dtype_b = text_or_none(tensor.dtype_b);
  if (tensor.a) columns.shape_a = tensor.shape_a;
  if (tensor.b) columns.shape_b = tensor.shape_b;
  if (!tensor.global_offsets.empty()) columns.offsets = tensor.global_offsets;
  columns.elements = tensor.elements;
  if (tensor.numbers) put_numbers(*tensor.numbers, tensor.has_values, columns);
  return columns.record();
}

Record record_of(const ModuleDiff& module) {
  Columns columns{.what = "module", .change = std::string("changed"), .name = text_or_none(module.prefix)};
  columns.elements = module.numbers.elements;
  put_numbers(module.numbers, true, columns);
  columns.tensors = module.tensors;
  columns.differing = module.differing;
  return columns.record();
}

Record record_of(const ValueDiff& value) {
  Columns columns{.what = "value", .change = std::string(to_string(value.change)), .name = value.path};
  put_places(value.a, value.b, columns);
  if (value.a) columns.old_value = value.old_value;
  if (value.b) columns.new_value = value.new_value;
  return columns.record();
}

Record record_of(const FileDiff& file) {
  Columns columns{
      .what = "file", .change = std::string(to_string(file.change)), .name = file.b ? file.b->file : file.a->file};
  put_places(file.a, file.b, columns);
  columns.old_value = text_or_none(file.old_value);
  columns.new_value = text_or_none(file.new_value);
  if (file.a) columns.size_a = file.size_a;
  if (file.b) columns.size_b = file.size_b;
  if (file.a && file.b) columns.changed_bytes = file.changed_bytes;
  return columns.record();
}

/// What is largest comes first; what can't be measured, before it.
double weight(const DiffNumbers* numbers, std::uint64_t bytes, DiffOrder order) {
  if (order == DiffOrder::size) return static_cast<double>(bytes);
  if (numbers == nullptr) return std::numeric_limits<double>::infinity();
  switch (order) {
    case DiffOrder::changed: return static_cast<double>(numbers->changed);
    case DiffOrder::max: return numbers->max_abs;
    case DiffOrder::mean: return numbers->mean_abs();
    case DiffOrder::l2: return numbers->l2();
    case DiffOrder::relative: return numbers->relative_l2();
    case DiffOrder::cosine: return -numbers->cosine().value_or(-2);
    default: return 0;
  }
}

const DiffNumbers* measured(const TensorDiff& tensor) {
  return tensor.numbers && tensor.has_values ? &*tensor.numbers : nullptr;
}
const DiffNumbers* measured(const ModuleDiff& module) { return &module.numbers; }
const std::string& name_of(const TensorDiff& tensor) { return tensor.name; }
const std::string& name_of(const ModuleDiff& module) { return module.prefix; }

template <class Item>
std::vector<const Item*> ordered(const std::vector<Item>& items, const std::function<bool(const Item&)>& wanted,
                                 const DiffView& view) {
  std::vector<const Item*> chosen;
  for (const Item& item : items) {
    if (wanted(item)) chosen.push_back(&item);
  }
  if (view.order == DiffOrder::name) {
    std::stable_sort(chosen.begin(), chosen.end(),
                     [](const Item* a, const Item* b) { return name_of(*a) < name_of(*b); });
  } else if (view.order) {
    std::stable_sort(chosen.begin(), chosen.end(), [&](const Item* a, const Item* b) {
      return weight(measured(*a), a->bytes, *view.order) > weight(measured(*b), b->bytes, *view.order);
    });
  }
  return chosen;
}

template <class Item>
std::uint64_t cut(std::vector<const Item*>& items, const DiffView& view) {
  const std::size_t all = items.size();
  if (view.most && *view.most < all) items.resize(static_cast<std::size_t>(*view.most));
  return all - items.size();
}

}  // namespace

void print_diff(Report& report, const DiffReport& diff, const DiffView& view, bool color) {
  std::vector<const TensorDiff*> tensors;
  std::vector<const ModuleDiff*> modules;
  const std::vector<ModuleDiff> sums = view.modules ? sum_by_module(diff) : std::vector<ModuleDiff>();
  if (view.modules) {
    const unsigned depth = view.depth.value_or(std::numeric_limits<unsigned>::max());
    modules = ordered<ModuleDiff>(
        sums, [&](const ModuleDiff& m) { return m.differing > 0 && m.depth <= depth; }, view);
  } else {
    tensors = ordered<TensorDiff>(
        diff.tensors, [](const TensorDiff& t) { return t.change != Change::same; }, view);
  }
  const std::uint64_t left_out = view.modules ? cut(modules, view) : cut(tensors, view);
  if (report.is_human()) {
    print_tables(report, diff, tensors, modules, left_out, color);
    return;
  }
  for (const TensorDiff* tensor : tensors) report.record(record_of(*tensor));
  for (const ModuleDiff* module : modules) report.record(record_of(*module));
  for (const ValueDiff& value : diff.values) report.record(record_of(value));
  for (const FileDiff& file : diff.files) report.record(record_of(file));
}

std::vector<Field> diff_summary(const DiffReport& diff, int exit_status) {
  const auto differ = static_cast<std::uint64_t>(std::count_if(
      diff.tensors.begin(), diff.tensors.end(), [](const TensorDiff& t) { return t.change != Change::same; }));
  return {{"same", diff.same()},
          {"tensors", std::uint64_t{diff.tensors.size()}},
          {"tensors_differ", differ},
          {"values_differ", std::uint64_t{diff.values.size()} + diff.more_values},
          {"files_differ", std::uint64_t{diff.files.size()}},
          {"bytes_read", diff.bytes_read},
          {"seconds", diff.seconds},
          {"exit_status", std::int64_t{exit_status}}};
}

}  // namespace ckpt::cli
