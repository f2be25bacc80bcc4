// SPDX-License-Identifier: Apache-2.0
// The last column is never padded, so that lines end where their text ends.
#include "cli/table.hpp"

#include <algorithm>
#include <utility>

#include "cli/text_escape.hpp"

namespace ckpt::cli {

void Table::row(std::vector<std::string> cells, std::string_view color) {
  for (std::string& cell : cells) cell = printable(cell);
  rows_.push_back({std::move(cells), color});
}

std::string Table::layout(const std::vector<std::string>& cells, const std::vector<std::size_t>& widths) const {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string padding(widths[i] - std::min(widths[i], display_width(cells[i])), ' ');
    const bool right = columns_[i].align == Column::Align::right;
    if (i > 0) line += "  ";
    line += right ? padding + cells[i] : cells[i] + padding;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

void Table::print(Report& report) const {
  if (rows_.empty()) return;
  std::vector<std::string> titles;
  std::vector<std::size_t> widths;
  for (const Column& column : columns_) {
    titles.emplace_back(column.title);
    widths.push_back(column.title.size());
  }
  for (const Row& row : rows_) {
    for (std::size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], display_width(row.cells[i]));
  }
  report.styled_line(layout(titles, widths));
  for (const Row& row : rows_) {
    const std::string line = layout(row.cells, widths);
    report.styled_line(row.color.empty() ? line : std::string(row.color) + line + "\033[0m");
  }
}

}  // namespace ckpt::cli
