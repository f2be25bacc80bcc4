// SPDX-License-Identifier: Apache-2.0
// Tables in CBOR: a map of columns, each a byte string of packed little-endian numbers, so that a hundred thousand
// rows are a handful of items. Unknown columns are passed over: that's how the format grows.
#pragma once

#include "core/bytes.hpp"
#include "format/damaged.hpp"

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt::format {

using Json = nlohmann::json;

/// Parses untrusted CBOR: definite lengths, no tags, 8 levels at most, no trailing bytes. Throws Damaged.
[[nodiscard]] Json parse_cbor(ByteView data, const char* what);
[[nodiscard]] Bytes dump_cbor(const Json& value);

/// Builds one table.
class TableWriter {
 public:
  template <FixedWidth T>
  void add(const char* column, const std::vector<T>& values) {
    std::vector<std::uint8_t> packed(values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(packed.data(), values.data(), packed.size());
    table_[column] = Json::binary(std::move(packed));
  }
  /// Texts are one after the other in a column; the ends are in another, named COLUMN_end.
  void add_texts(const std::string& column, const std::vector<std::string_view>& values);
  void add_bytes(const char* column, ByteView bytes);
  [[nodiscard]] Json take() && { return std::move(table_); }

 private:
  Json table_ = Json::object();
};

/// Reads one table; every access is checked and throws Damaged with the table's name.
class TableReader {
 public:
  /// `parent[name]` must be a map. The table must outlive the reader.
  TableReader(const Json& parent, const char* name);

  [[nodiscard]] bool has(const char* column) const { return table_->contains(column); }

  template <FixedWidth T>
  [[nodiscard]] std::vector<T> numbers(const char* column) const {
    const ByteView packed = bytes(column);
    if (packed.size() % sizeof(T) != 0) fail(column, "has an odd size");
    std::vector<T> values(packed.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), packed.data(), packed.size());
    return values;
  }
  /// As numbers(), and there must be so many.
  template <FixedWidth T>
  [[nodiscard]] std::vector<T> numbers(const char* column, std::size_t count) const {
    std::vector<T> values = numbers<T>(column);
    if (values.size() != count) fail(column, "has another number of rows");
    return values;
  }
  /// Views into the parsed document.
  [[nodiscard]] std::vector<std::string_view> texts(const std::string& column, std::size_t count) const;
  [[nodiscard]] ByteView bytes(const char* column) const;

  [[noreturn]] void fail(const std::string& column, const std::string& why) const;

 private:
  const char* name_;
  const Json* table_;
};

}  // namespace ckpt::format
