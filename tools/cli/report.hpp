// SPDX-License-Identifier: Apache-2.0
// A tool's report on standard output: for people, as tsv, or as JSON Lines between a header and a summary.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/record.hpp"
#include "cli/standard_output.hpp"

namespace ckpt::cli {

enum class Format { human, tsv, json };

class Report {
 public:
  /// `schema` is like "ckpt-verify/1". With `null` NUL ends each record and nothing is escaped.
  Report(StandardOutput& out, Format format, bool null, std::string_view schema);

  [[nodiscard]] Format format() const { return format_; }
  [[nodiscard]] bool is_human() const { return format_ == Format::human; }

  /// JSON only, first: what was asked for.
  void header(std::vector<Field> fields);
  /// tsv and JSON.
  void record(const Record& record);
  /// For people: one line, its control characters escaped unless `null`.
  void line(std::string_view text);
  /// As line(), for a text that holds escape sequences on purpose.
  void styled_line(std::string_view text);
  /// JSON only, last: what came out.
  void summary(std::vector<Field> fields);

 private:
  void end_record();

  StandardOutput& out_;
  Format format_;
  bool null_;
  std::string schema_;
};

}  // namespace ckpt::cli
