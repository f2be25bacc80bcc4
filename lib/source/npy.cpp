// SPDX-License-Identifier: Apache-2.0
// The header of an npy file is a Python dict literal with three fixed keys; a small scanner reads just that. What
// follows is the array; Fortran order is a matter of strides.
#include "source/npy.hpp"

#include "source/pickle_literals.hpp"
#include "source/torch_types.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ckpt::source {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view magic = "\x93NUMPY"sv;
constexpr std::uint64_t max_header = 1U << 20U;
constexpr std::size_t max_npy_dimensions = 64;

struct NpyHeader {
  std::string descr;  ///< empty: not a plain type
  bool fortran = false;
  std::vector<std::int64_t> shape;
};

/// Reads the literal forward; every member says whether it found what it was asked for.
class LiteralScanner {
 public:
  explicit LiteralScanner(std::string_view text) : rest_(text) {}

  bool take(char c) {
    skip_space();
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool word(std::string_view expected) {
    skip_space();
    if (!rest_.starts_with(expected)) return false;
    rest_.remove_prefix(expected.size());
    return true;
  }

  std::optional<std::string_view> quoted() {
    skip_space();
    if (rest_.empty() || (rest_.front() != '\'' && rest_.front() != '"')) return std::nullopt;
    const std::size_t end = rest_.find(rest_.front(), 1);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view text = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return text;
  }

  std::optional<std::int64_t> number() {
    skip_space();
    const std::size_t end = std::min(rest_.find_first_not_of("0123456789"), rest_.size());
    const auto value = decimal(rest_.substr(0, end));
    rest_.remove_prefix(end);
    // Python 2 wrote long integers so.
    if (value) static_cast<void>(take('L'));
    return value;
  }

  std::optional<std::vector<std::int64_t>> numbers() {
    if (!take('(')) return std::nullopt;
    std::vector<std::int64_t> all;
    while (!take(')')) {
      const auto value = number();
      if (!value || all.size() == max_npy_dimensions) return std::nullopt;
      all.push_back(*value);
      if (!take(',') && !peek(')')) return std::nullopt;
    }
    return all;
  }

 private:
  void skip_space() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \n\t"), rest_.size())); }

  bool peek(char c) {
    skip_space();
    return !rest_.empty() && rest_.front() == c;
  }

  std::string_view rest_;
};

std::optional<NpyHeader> parse_header(std::string_view text) {
  LiteralScanner scanner(text);
  NpyHeader header;
  bool shape_seen = false;
  bool descr_seen = false;
  if (!scanner.take('{')) return std::nullopt;
  while (!scanner.take('}')) {
    const auto key = scanner.quoted();
    if (!key || !scanner.take(':')) return std::nullopt;
    if (*key == "descr") {
      const auto descr = scanner.quoted();
      // A list of fields stands for records.
      if (!descr) return header;
      header.descr = *descr;
      descr_seen = true;
    } else if (*key == "fortran_order") {
      header.fortran = scanner.word("True");
      if (!header.fortran && !scanner.word("False")) return std::nullopt;
    } else if (*key == "shape") {
      auto shape = scanner.numbers();
      if (!shape) return std::nullopt;
      header.shape = std::move(*shape);
      shape_seen = true;
    } else {
      return std::nullopt;
    }
    static_cast<void>(scanner.take(','));
  }
  if (!shape_seen || !descr_seen) return std::nullopt;
  return header;
}

struct NpyType {
  DType dtype = DType::opaque;
  bool swapped = false;
};

/// "<f4" and the like.
NpyType type_of(std::string_view descr) {
  constexpr std::pair<std::string_view, DType> types[] = {
      {"f4", DType::float32},   {"f8", DType::float64},     {"f2", DType::float16},   {"i8", DType::int64},
      {"i4", DType::int32},     {"i2", DType::int16},       {"i1", DType::int8},      {"u8", DType::uint64},
      {"u4", DType::uint32},    {"u2", DType::uint16},      {"u1", DType::uint8},     {"b1", DType::boolean},
      {"c8", DType::complex64}, {"c16", DType::complex128}, {"f16", DType::width128},
  };
  NpyType type;
  if (descr.empty()) return type;
  const char order = descr.front();
  if (order == '<' || order == '>' || order == '|' || order == '=') descr.remove_prefix(1);
  for (const auto& [name, dtype] : types) {
    if (name == descr) type.dtype = dtype;
  }
  // Dates, and raw bytes, which is how types that numpy doesn't know are written.
  if (descr.starts_with("M8") || descr.starts_with("m8")) type.dtype = DType::width64;
  if (descr.starts_with("V")) {
    const auto width = decimal(descr.substr(1));
    if (width && *width > 0) type.dtype = dtype_of_width(static_cast<std::uint64_t>(*width)).value_or(DType::opaque);
  }
  type.swapped = order == '>' && bits_of(type.dtype) > 8;
  if (type.swapped) type.dtype = width_only(type.dtype);
  return type;
}

std::vector<std::int64_t> fortran_strides(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> reversed(shape.rbegin(), shape.rend());
  std::vector<std::int64_t> strides = contiguous_strides(reversed);
  return {strides.rbegin(), strides.rend()};
}

}  // namespace

bool looks_like_npy(ByteView head) { return as_text(head).starts_with(magic); }

Verdict parse_npy(const Input& input, std::uint64_t begin, std::uint64_t end, std::string name, Parsed& to) {
  const std::uint64_t size = end - begin;
  Bytes head(static_cast<std::size_t>(std::min<std::uint64_t>(size, 12)));
  if (!head.empty()) input.read(begin, head);
  if (head.size() < 10 || !looks_like_npy(head)) return Verdict::foreign("not an array");
  const unsigned version = std::to_integer<unsigned>(head[6]);
  const bool wide = version >= 2;
  if (version == 0 || version > 3 || (wide && head.size() < 12))
    return Verdict::foreign("an npy version without a reader");
  const std::uint64_t header_begin = wide ? 12 : 10;
  const std::uint64_t header_size =
      wide ? std::uint64_t{load_le<std::uint32_t>(head.data() + 8)} : load_le<std::uint16_t>(head.data() + 8);
  if (header_size > max_header) return Verdict::refused("the array's header is larger than 1 MiB");
  if (!lies_within(header_begin, header_size, size)) return Verdict::malformed("cut short: it ends inside the header");

  std::string text(static_cast<std::size_t>(header_size), '\0');
  if (!text.empty()) input.read(begin + header_begin, std::as_writable_bytes(std::span(text)));
  const auto header = parse_header(text);
  if (!header) return Verdict::malformed("altered: the header isn't as it should be");

  const NpyType type = type_of(header->descr);
  if (type.dtype == DType::opaque) {
    to.note = "arrays of objects, texts or records are kept as they are";
    return {};
  }
  if (type.swapped) to.note = "big-endian: only the widths of its elements are known";

  Tensor tensor;
  tensor.dtype = type.dtype;
  tensor.shape = header->shape;
  tensor.strides = header->fortran ? fortran_strides(tensor.shape) : contiguous_strides(tensor.shape);
  const auto bytes = contiguous_bytes(tensor);
  const std::uint64_t start = header_begin + header_size;
  if (!bytes || !lies_within(start, *bytes, size)) {
    return Verdict::malformed("cut short: the array should end beyond offset " + std::to_string(end));
  }
  tensor.name = std::move(name);
  tensor.offset = *bytes == 0 ? 0 : begin + start;
  if (*bytes > 0) to.extents.push_back({begin + start, *bytes, type.dtype});
  to.tensors.push_back(std::move(tensor));
  return {};
}

Verdict parse_npz(const Input& input, const ZipDirectory& directory, UniqueNames& names, Parsed& to) {
  std::vector<std::uint32_t> stored;
  bool any = false;
  for (std::uint32_t i = 0; i < directory.entries.size(); ++i) {
    const ZipEntry& entry = directory.entries[i];
    if (!entry.name.ends_with(".npy")) continue;
    any = true;
    if (entry.stored) {
      stored.push_back(i);
    } else {
      to.note = "deflated entries are kept as they are";
    }
  }
  if (!any) return Verdict::foreign("a zip without arrays");
  std::vector<std::uint64_t> starts;
  if (auto wrong = locate_zip_data(input, directory, stored, starts)) return Verdict::malformed(*wrong);
  for (std::size_t i = 0; i < stored.size(); ++i) {
    const ZipEntry& entry = directory.entries[stored[i]];
    std::string name(entry.name.substr(0, entry.name.size() - 4));
    if (name.empty()) name = "\"\"";
    Verdict verdict = parse_npy(input, starts[i], starts[i] + entry.size, names.claim(std::move(name)), to);
    if (verdict.kind == Verdict::Kind::malformed) return verdict;
    // One member that can't be typed leaves the others as they are.
    if (!verdict.is_fine()) to.note = verdict.message;
  }
  return {};
}

}  // namespace ckpt::source
