// SPDX-License-Identifier: Apache-2.0
// The library's CBOR parser recurses and believes lengths, so a flat walk over the items checks both first.
#include "format/cbor_table.hpp"

namespace ckpt::format {
namespace {

constexpr std::size_t max_depth = 8;
constexpr std::size_t max_items = 1U << 20U;

/// Why the document can't be parsed, or null if it can.
const char* check_cbor(ByteView data) {
  ByteReader reader(data);
  std::vector<std::uint64_t> open = {1};  // items still to come, by level
  std::size_t items = 0;
  while (!open.empty()) {
    if (open.back() == 0) {
      open.pop_back();
      continue;
    }
    --open.back();
    if (++items > max_items) return "has too many items";
    const auto head = reader.number<std::uint8_t>();
    if (!head) return "ends early";
    const unsigned major = *head >> 5U;
    const unsigned info = *head & 31U;
    std::uint64_t value = info;
    if (info >= 24) {
      if (info > 27) return "has an item of indefinite length";
      const auto tail = reader.take(std::uint64_t{1} << (info - 24));
      if (!tail) return "ends early";
      value = 0;
      for (const std::byte b : *tail) value = value << 8U | std::to_integer<std::uint64_t>(b);
    }
    switch (major) {
      case 0:
      case 1: break;
      case 2:
      case 3:
        if (!reader.take(value)) return "ends early";
        break;
      case 4:
      case 5:
        if (value > reader.remaining()) return "ends early";
        if (open.size() >= max_depth) return "is nested too deeply";
        open.push_back(major == 5 ? 2 * value : value);
        break;
      case 7:
        if (info < 20 || info > 22) return "has an item of a type that isn't used";  // false, true, null
        break;
      default: return "has a tag";
    }
  }
  return reader.remaining() == 0 ? nullptr : "has bytes after its end";
}

}  // namespace

Json parse_cbor(ByteView data, const char* what) {
  const char* problem = check_cbor(data);
  if (problem == nullptr) {
    const auto* begin = reinterpret_cast<const std::uint8_t*>(data.data());
    Json value = Json::from_cbor(begin, begin + data.size(), true, false);
    if (value.is_object()) return value;
    problem = "is not a map";
  }
  throw Damaged(DamageKind::altered, 0, 0, std::string(what) + " " + problem);
}

Bytes dump_cbor(const Json& value) {
  std::vector<std::uint8_t> packed;
  Json::to_cbor(value, packed);
  const ByteView view = std::as_bytes(std::span(packed));
  return {view.begin(), view.end()};
}

void TableWriter::add_texts(const std::string& column, const std::vector<std::string_view>& values) {
  std::vector<std::uint8_t> joined;
  std::vector<std::uint64_t> ends;
  ends.reserve(values.size());
  for (const std::string_view value : values) {
    joined.insert(joined.end(), value.begin(), value.end());
    ends.push_back(joined.size());
  }
  table_[column] = Json::binary(std::move(joined));
  add((column + "_end").c_str(), ends);
}

void TableWriter::add_bytes(const char* column, ByteView bytes) {
  const auto* begin = reinterpret_cast<const std::uint8_t*>(bytes.data());
  table_[column] = Json::binary(std::vector<std::uint8_t>(begin, begin + bytes.size()));
}

TableReader::TableReader(const Json& parent, const char* name) : name_(name), table_(nullptr) {
  const auto it = parent.find(name);
  if (it == parent.end() || !it->is_object()) {
    throw Damaged(DamageKind::altered, 0, 0, std::string("table '") + name + "' is missing");
  }
  table_ = &*it;
}

ByteView TableReader::bytes(const char* column) const {
  const auto it = table_->find(column);
  if (it == table_->end() || !it->is_binary()) fail(column, "is missing");
  const auto& packed = it->get_binary();
  return std::as_bytes(std::span(packed.data(), packed.size()));
}

std::vector<std::string_view> TableReader::texts(const std::string& column, std::size_t count) const {
  const std::string_view joined = as_text(bytes(column.c_str()));
  const auto ends = numbers<std::uint64_t>((column + "_end").c_str(), count);
  std::vector<std::string_view> values;
  values.reserve(count);
  std::uint64_t begin = 0;
  for (const std::uint64_t end : ends) {
    if (end < begin || end > joined.size()) fail(column, "has ends out of order");
    values.push_back(joined.substr(begin, end - begin));
    begin = end;
  }
  if (begin != joined.size()) fail(column, "has bytes after its last text");
  return values;
}

void TableReader::fail(const std::string& column, const std::string& why) const {
  throw Damaged(DamageKind::altered, 0, 0, std::string("column '") + name_ + "." + column + "' " + why);
}

}  // namespace ckpt::format
