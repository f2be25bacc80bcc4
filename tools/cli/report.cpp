// SPDX-License-Identifier: Apache-2.0
// A record goes out in the one format that was asked for; header and summary exist in JSON alone.
#include "cli/report.hpp"

#include <ckpt/version.hpp>

#include <utility>

#include "cli/text_escape.hpp"

namespace ckpt::cli {

Report::Report(StandardOutput& out, Format format, bool null, std::string_view schema)
    : out_(out), format_(format), null_(null), schema_(schema) {}

void Report::end_record() { out_.write(null_ ? std::string_view("\0", 1) : std::string_view("\n")); }

void Report::header(std::vector<Field> fields) {
  if (format_ != Format::json) return;
  Record first{"header", {{"schema", schema_}, {"version", std::string(version())}}};
  for (Field& field : fields) first.fields.push_back(std::move(field));
  record(first);
}

void Report::record(const Record& record) {
  if (format_ == Format::human) return;
  out_.write(format_ == Format::json ? json_line(record) : tsv_line(record, !null_));
  end_record();
}

void Report::line(std::string_view text) {
  if (format_ != Format::human) return;
  out_.write(null_ ? std::string(text) : printable(text));
  end_record();
}

void Report::styled_line(std::string_view text) {
  if (format_ != Format::human) return;
  out_.write(text);
  end_record();
}

void Report::summary(std::vector<Field> fields) {
  if (format_ == Format::json) record({"summary", std::move(fields)});
}

}  // namespace ckpt::cli
