// SPDX-License-Identifier: Apache-2.0
// CBOR is read and written here and not by the JSON library, which takes byte strings one byte at a time, recurses as
// deep as the input says and believes lengths.
#include "format/cbor_table.hpp"

#include <optional>
#include <utility>

namespace ckpt::format {
namespace {

constexpr std::size_t max_depth = 8;
constexpr std::size_t max_items = 1U << 20U;

enum Major : unsigned { positive, negative, bytes, text, list, map, tag, simple };
constexpr unsigned simple_false = 20;
constexpr unsigned simple_true = 21;
constexpr unsigned simple_null = 22;

struct Head {
  unsigned major = 0;
  unsigned info = 0;
  std::uint64_t value = 0;
};

/// What is wrong with a document.
struct Refused {
  const char* why;
};

class Parser {
 public:
  explicit Parser(ByteView data) : reader_(data) {}

  Json document() {
    Json value = item(1);
    if (reader_.remaining() != 0) throw Refused{"has bytes after its end"};
    return value;
  }

 private:
  template <class T>
  static T required(const std::optional<T>& got) {
    if (!got) throw Refused{"ends early"};
    return *got;
  }

  Head head() {
    if (++items_ > max_items) throw Refused{"has too many items"};
    const unsigned first = required(reader_.number<std::uint8_t>());
    Head head{.major = first >> 5U, .info = first & 31U, .value = first & 31U};
    if (head.info < 24) return head;
    if (head.info > 27) throw Refused{"has an item of indefinite length"};
    head.value = 0;
    for (const std::byte b : required(reader_.take(std::uint64_t{1} << (head.info - 24)))) {
      head.value = head.value << 8U | std::to_integer<std::uint64_t>(b);
    }
    return head;
  }

  /// `depth` is how many containers this item would be the innermost of, if it's one.
  Json item(std::size_t depth) {
    const Head head = this->head();
    switch (head.major) {
      case positive: return head.value;
      case negative:
        if (head.value > INT64_MAX) throw Refused{"has a number below all that are possible"};
        return -1 - static_cast<std::int64_t>(head.value);
      case bytes: {
        const ByteView view = required(reader_.take(head.value));
        const auto* begin = reinterpret_cast<const std::uint8_t*>(view.data());
        return Json::binary(std::vector<std::uint8_t>(begin, begin + view.size()));
      }
      case text: return std::string(as_text(required(reader_.take(head.value))));
      case list:
      case map:
        // Each item is a byte at least.
        if (head.value > reader_.remaining()) throw Refused{"ends early"};
        if (depth >= max_depth) throw Refused{"is nested too deeply"};
        return head.major == list ? items_of_list(head.value, depth + 1) : items_of_map(head.value, depth + 1);
      case tag: throw Refused{"has a tag"};
      default: break;
    }
    if (head.info == simple_false || head.info == simple_true) return head.info == simple_true;
    if (head.info == simple_null) return nullptr;
    throw Refused{"has an item of a type that isn't used"};
  }

  Json items_of_list(std::uint64_t count, std::size_t depth) {
    Json values = Json::array();
    for (std::uint64_t i = 0; i < count; ++i) values.push_back(item(depth));
    return values;
  }

  Json items_of_map(std::uint64_t count, std::size_t depth) {
    Json values = Json::object();
    for (std::uint64_t i = 0; i < count; ++i) {
      const Head key = head();
      if (key.major != text) throw Refused{"has a key that isn't a text"};
      Json& value = values[std::string(as_text(required(reader_.take(key.value))))];
      value = item(depth);
    }
    return values;
  }

  ByteReader reader_;
  std::size_t items_ = 0;
};

void write_head(Bytes& to, Major major, std::uint64_t value) {
  const unsigned width = value < 24            ? 0
                         : value <= UINT8_MAX  ? 1
                         : value <= UINT16_MAX ? 2
                         : value <= UINT32_MAX ? 4
                                               : 8;
  const std::uint64_t info = width == 0 ? value : width == 1 ? 24 : width == 2 ? 25 : width == 4 ? 26 : 27;
  to.push_back(static_cast<std::byte>(static_cast<std::uint64_t>(major) << 5U | info));
  for (unsigned i = width; i-- > 0;) to.push_back(static_cast<std::byte>(value >> (8 * i) & 255U));
}

void write_text(Bytes& to, const std::string& value) {
  write_head(to, text, value.size());
  append(to, as_bytes(value));
}

void write_item(Bytes& to, const Json& value) {
  switch (value.type()) {
    case Json::value_t::number_unsigned: return write_head(to, positive, value.get<std::uint64_t>());
    case Json::value_t::number_integer: {
      const auto number = value.get<std::int64_t>();
      if (number >= 0) return write_head(to, positive, static_cast<std::uint64_t>(number));
      return write_head(to, negative, static_cast<std::uint64_t>(-1 - number));
    }
    case Json::value_t::string: return write_text(to, value.get_ref<const std::string&>());
    case Json::value_t::binary: {
      const auto& packed = value.get_binary();
      write_head(to, bytes, packed.size());
      return append(to, std::as_bytes(std::span(packed.data(), packed.size())));
    }
    case Json::value_t::array:
      write_head(to, list, value.size());
      for (const Json& each : value) write_item(to, each);
      return;
    case Json::value_t::object:
      write_head(to, map, value.size());
      for (const auto& [key, each] : value.get_ref<const Json::object_t&>()) {
        write_text(to, key);
        write_item(to, each);
      }
      return;
    case Json::value_t::boolean: return write_head(to, simple, value.get<bool>() ? simple_true : simple_false);
    default: return write_head(to, simple, simple_null);
  }
}

/// Of what takes space: a bound for the whole, but for heads.
std::size_t size_of_bytes(const Json& value) {
  if (value.is_binary()) return value.get_binary().size() + 16;
  std::size_t total = 0;
  if (value.is_structured()) {
    for (const Json& each : value) total += size_of_bytes(each);
  }
  return total;
}

}  // namespace

Json parse_cbor(ByteView data, const char* what) {
  const auto refuse = [&](const char* why) {
    return Damaged(DamageKind::altered, 0, 0, std::string(what) + " " + why);
  };
  try {
    Json value = Parser(data).document();
    if (value.is_object()) return value;
  } catch (const Refused& refused) {
    throw refuse(refused.why);
  }
  throw refuse("is not a map");
}

Bytes dump_cbor(const Json& value) {
  Bytes document;
  document.reserve(size_of_bytes(value) + 4096);
  write_item(document, value);
  return document;
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
