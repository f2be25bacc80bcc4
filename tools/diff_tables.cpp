// SPDX-License-Identifier: Apache-2.0
#include "diff_tables.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>

#include "cli/quantities.hpp"
#include "cli/table.hpp"

namespace ckpt::cli {
namespace {

constexpr auto left = Column::Align::left;
constexpr auto right = Column::Align::right;
constexpr std::size_t most_value = 60;

std::string_view color_of(Change change, bool color) {
  if (!color) return "";
  switch (change) {
    case Change::added: return "\033[32m";
    case Change::removed: return "\033[31m";
    case Change::reshaped:
    case Change::retyped: return "\033[35m";
    default: return "";
  }
}

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string step(const std::string& a, const std::string& b) {
  if (a == b || b.empty()) return a;
  return a.empty() ? b : a + " -> " + b;
}

std::string shapes(const TensorDiff& tensor) {
  std::string text = step(tensor.a ? shape_text(tensor.shape_a) : "", tensor.b ? shape_text(tensor.shape_b) : "");
  if (!tensor.global_offsets.empty()) text += " at " + shape_text(tensor.global_offsets);
  return text;
}

std::string share(std::uint64_t part, std::uint64_t all) {
  if (all == 0 || part == 0) return "0";
  if (part == all) return "all";
  const double percent = 100 * static_cast<double>(part) / static_cast<double>(all);
  // Neither rounded to nothing nor to everything.
  if (percent < 0.1 || percent > 99.9) return std::to_string(part);
  return fmt::format("{:.1f}%", percent);
}

std::string number(double value) { return fmt::format("{:.3g}", value); }

std::string cosine_text(const DiffNumbers& numbers) {
  const auto cosine = numbers.cosine();
  if (!cosine) return "-";
  // Near 1 what is missing says more.
  return *cosine > 0.9995 ? fmt::format("1-{:.1g}", std::max(0.0, 1 - *cosine)) : fmt::format("{:.4f}", *cosine);
}

std::string odd_text(const DiffNumbers& numbers) {
  std::string text;
  if (numbers.nan_a + numbers.nan_b > 0) text += fmt::format("NaN {} -> {}", numbers.nan_a, numbers.nan_b);
  if (numbers.inf_a + numbers.inf_b > 0) {
    text += fmt::format("{}Inf {} -> {}", text.empty() ? "" : ", ", numbers.inf_a, numbers.inf_b);
  }
  return text;
}

/// CHANGED, MAX, MEAN, REL L2, COSINE, NAN/INF.
std::vector<std::string> number_cells(const DiffNumbers* numbers, bool has_values) {
  if (numbers == nullptr) return {"-", "-", "-", "-", "-", ""};
  const std::string changed = share(numbers->changed, numbers->elements);
  if (!has_values) return {changed, "-", "-", "-", "-", ""};
  return {changed,
          number(numbers->max_abs),
          number(numbers->mean_abs()),
          number(numbers->relative_l2()),
          cosine_text(*numbers),
          odd_text(*numbers)};
}

std::vector<Column> with_numbers(std::vector<Column> columns) {
  for (const Column& column : {Column{"CHANGED", right}, Column{"MAX", right}, Column{"MEAN", right},
                               Column{"REL L2", right}, Column{"COSINE", right}, Column{"NAN/INF", left}}) {
    columns.push_back(column);
  }
  return columns;
}

void append(std::vector<std::string>& to, std::vector<std::string> from) {
  std::move(from.begin(), from.end(), std::back_inserter(to));
}

std::string shortened(const std::string& value) {
  if (value.size() <= most_value) return value;
  std::size_t end = most_value - 3;
  while (end > 0 && (static_cast<unsigned char>(value[end]) & 0xc0U) == 0x80U) --end;
  return value.substr(0, end) + "...";
}

std::string file_of(const std::optional<DiffPlace>& a, const std::optional<DiffPlace>& b) {
  if (!a) return b->file;
  return b ? step(a->file, b->file) : a->file;
}

/// True if the lines must say which file or rank they're of.
template <class Item>
bool are_of_many_files(const std::vector<Item>& items) {
  std::set<std::pair<std::string, std::uint32_t>> seen_a;
  std::set<std::pair<std::string, std::uint32_t>> seen_b;
  for (const Item& item : items) {
    if (item.a) seen_a.emplace(item.a->file, item.a->rank);
    if (item.b) seen_b.emplace(item.b->file, item.b->rank);
  }
  return seen_a.size() > 1 || seen_b.size() > 1;
}

std::string place_text(const std::optional<DiffPlace>& a, const std::optional<DiffPlace>& b) {
  const std::uint32_t rank = a ? a->rank : b->rank;
  return rank == 0 ? file_of(a, b) : fmt::format("{} (rank {})", file_of(a, b), rank);
}

void print_tensors(Report& report, const std::vector<const TensorDiff*>& tensors, bool many_files, bool color) {
  std::vector<Column> columns = {{"CHANGE", left}, {"TENSOR", left}, {"TYPE", left}, {"SHAPE", left}};
  if (many_files) columns.insert(columns.begin() + 1, {"FILE", left});
  Table table(with_numbers(std::move(columns)));
  for (const TensorDiff* tensor : tensors) {
    std::vector<std::string> cells = {std::string(to_string(tensor->change)), tensor->name,
                                      step(tensor->dtype_a, tensor->dtype_b), shapes(*tensor)};
    if (many_files) cells.insert(cells.begin() + 1, place_text(tensor->a, tensor->b));
    append(cells, number_cells(tensor->numbers ? &*tensor->numbers : nullptr, tensor->has_values));
    table.row(std::move(cells), color_of(tensor->change, color));
  }
  table.print(report);
}

void print_modules(Report& report, const std::vector<const ModuleDiff*>& modules) {
  Table table(with_numbers({{"MODULE", left}, {"TENSORS", right}, {"DIFFER", right}}));
  for (const ModuleDiff* module : modules) {
    std::vector<std::string> cells = {module->prefix.empty() ? "(all)" : module->prefix,
                                      std::to_string(module->tensors), std::to_string(module->differing)};
    append(cells, number_cells(&module->numbers, module->numbers.elements > 0));
    table.row(std::move(cells));
  }
  table.print(report);
}

void print_values(Report& report, const DiffReport& diff, bool color) {
  const bool many_files = are_of_many_files(diff.values);
  std::vector<Column> columns = {{"CHANGE", left}, {"VALUE", left}, {"OLD", left}, {"NEW", left}};
  if (many_files) columns.insert(columns.begin() + 1, {"FILE", left});
  Table table(std::move(columns));
  for (const ValueDiff& value : diff.values) {
    std::vector<std::string> cells = {std::string(to_string(value.change)), value.path, shortened(value.old_value),
                                      shortened(value.new_value)};
    if (many_files) cells.insert(cells.begin() + 1, place_text(value.a, value.b));
    table.row(std::move(cells), color_of(value.change, color));
  }
  table.print(report);
  if (diff.more_values > 0) report.line(fmt::format("and {} values more", diff.more_values));
}

void print_files(Report& report, const DiffReport& diff, bool color) {
  Table table({{"CHANGE", left}, {"FILE", left}, {"KIND", left}, {"SIZE", right}, {"BYTES", right}, {"TEXT", left}});
  for (const FileDiff& file : diff.files) {
    const std::string size = step(file.a ? human_bytes(file.size_a) : "", file.b ? human_bytes(file.size_b) : "");
    table.row({std::string(to_string(file.change)), place_text(file.a, file.b), file.kind, size,
               file.a && file.b ? std::to_string(file.changed_bytes) : "-",
               step(shortened(file.old_value), shortened(file.new_value))},
              color_of(file.change, color));
  }
  table.print(report);
}

}  // namespace

void print_tables(Report& report, const DiffReport& diff, const std::vector<const TensorDiff*>& tensors,
                  const std::vector<const ModuleDiff*>& modules, std::uint64_t left_out, bool color) {
  if (diff.same()) return;
  std::vector<TensorDiff> places;
  for (const TensorDiff* tensor : tensors) places.push_back({.a = tensor->a, .b = tensor->b});
  print_tensors(report, tensors, are_of_many_files(places), color);
  print_modules(report, modules);
  if (left_out > 0) report.line(fmt::format("and {} more, left out by --top", left_out));
  bool any = !tensors.empty() || !modules.empty();
  const auto part = [&](bool wanted, const auto& print) {
    if (!wanted) return;
    if (any) report.line("");
    any = true;
    print();
  };
  part(!diff.values.empty(), [&] { print_values(report, diff, color); });
  part(!diff.files.empty(), [&] { print_files(report, diff, color); });
  const auto differ = std::count_if(diff.tensors.begin(), diff.tensors.end(),
                                    [](const TensorDiff& tensor) { return tensor.change != Change::same; });
  report.line("");
  report.line(fmt::format("different: {} of {} tensors; values: {}; files: {}", differ, diff.tensors.size(),
                          diff.values.size() + diff.more_values, diff.files.size()));
}

}  // namespace ckpt::cli
