// SPDX-License-Identifier: Apache-2.0
// Aligned columns for people: names above, numbers to the right, nothing at all for no rows.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cli/report.hpp"

namespace ckpt::cli {

struct Column {
  std::string_view title;
  enum class Align { left, right } align = Align::left;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// As many cells as columns; control characters are escaped. `color` is an escape sequence for the whole row.
  void row(std::vector<std::string> cells, std::string_view color = {});
  void print(Report& report) const;

 private:
  [[nodiscard]] std::string layout(const std::vector<std::string>& cells, const std::vector<std::size_t>& widths) const;

  struct Row {
    std::vector<std::string> cells;
    std::string_view color;
  };
  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

}  // namespace ckpt::cli
