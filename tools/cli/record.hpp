// SPDX-License-Identifier: Apache-2.0
// One record of a tool's report: a type and fields in a fixed order, the same for tsv and JSON.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace ckpt::cli {

/// std::monostate is "there is none": an empty tsv column, JSON's null.
using FieldValue = std::variant<std::monostate, bool, std::uint64_t, std::int64_t, double, std::string,
                                std::vector<std::int64_t>, std::map<std::string, std::string>>;

struct Field {
  std::string_view key;  ///< snake_case; a literal
  FieldValue value;
};

struct Record {
  std::string_view type;  ///< a literal
  std::vector<Field> fields;
};

/// The value, or none.
template <class T>
[[nodiscard]] FieldValue field_of(const std::optional<T>& value) {
  if (value) return FieldValue(*value);
  return std::monostate{};
}

/// The text, or none if it's empty.
[[nodiscard]] FieldValue text_or_none(std::string text);

/// As a tsv column, without escapes: true and false, list items joined by commas, a map as a JSON object.
[[nodiscard]] std::string plain_text(const FieldValue& value);

/// Columns joined by tabs. `escape`: tab, newline and backslash in them are written with a backslash.
[[nodiscard]] std::string tsv_line(const Record& record, bool escape);

/// {"type":...,...} on one line. A text `key` that isn't UTF-8 is followed by `key_b64`.
[[nodiscard]] std::string json_line(const Record& record);

/// Shortest text that reads back as the same number; NaN, Infinity and -Infinity.
[[nodiscard]] std::string number_text(double value);

}  // namespace ckpt::cli
