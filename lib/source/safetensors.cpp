// SPDX-License-Identifier: Apache-2.0
// The header is read as a stream of JSON events, so that its size alone bounds the work, and then held against the
// format's rule: sorted by place, each tensor begins where the one before it ended, and the last ends the file.
#include "source/safetensors.hpp"

#include "source/torch_types.hpp"
#include "source/unique_names.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace ckpt::source {
namespace {

constexpr std::pair<std::string_view, DType> safetensors_types[] = {
    {"BOOL", DType::boolean},
    {"F4", DType::float4},
    {"F6_E2M3", DType::float6_e2m3},
    {"F6_E3M2", DType::float6_e3m2},
    {"U8", DType::uint8},
    {"I8", DType::int8},
    {"F8_E5M2", DType::float8_e5m2},
    {"F8_E4M3", DType::float8_e4m3fn},
    {"F8_E8M0", DType::float8_e8m0fnu},
    {"F8_E5M2FNUZ", DType::float8_e5m2fnuz},
    {"F8_E4M3FNUZ", DType::float8_e4m3fnuz},
    {"I16", DType::int16},
    {"U16", DType::uint16},
    {"F16", DType::float16},
    {"BF16", DType::bfloat16},
    {"I32", DType::int32},
    {"U32", DType::uint32},
    {"F32", DType::float32},
    {"C64", DType::complex64},
    {"F64", DType::float64},
    {"I64", DType::int64},
    {"U64", DType::uint64},
};

constexpr std::size_t max_header_dimensions = 64;

struct HeaderEntry {
  std::string name;
  std::string type;
  std::vector<std::int64_t> shape;
  std::vector<std::uint64_t> offsets;
};

/// Takes {"name": {"dtype": "..", "shape": [..], "data_offsets": [.., ..]}, "__metadata__": {"..": ".."}} and nothing
/// else: any other event stops it.
class HeaderEvents final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<HeaderEntry> entries;
  std::string wrong;

  bool null() override { return refuse("a null"); }
  bool boolean(bool) override { return refuse("a boolean"); }
  bool number_integer(std::int64_t) override { return refuse("a negative number"); }
  bool number_float(double, const std::string&) override { return refuse("a fraction"); }
  bool binary(nlohmann::json::binary_t&) override { return refuse("binary data"); }

  bool number_unsigned(std::uint64_t value) override {
    if (!in_array_) return refuse("a number");
    HeaderEntry& entry = entries.back();
    if (key_ == "shape") {
      if (value > static_cast<std::uint64_t>(INT64_MAX)) return refuse("a dimension beyond 64 bits");
      if (entry.shape.size() == max_header_dimensions) return refuse("more than 64 dimensions");
      entry.shape.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (entry.offsets.size() == 2) return refuse("more than two offsets");
    entry.offsets.push_back(value);
    return true;
  }

  bool string(std::string& value) override {
    if (in_metadata_ && depth_ == 2) return true;
    if (depth_ != 2 || in_array_ || key_ != "dtype") return refuse("a text");
    entries.back().type = std::move(value);
    return true;
  }

  bool start_object(std::size_t) override {
    if (depth_ == 2 || in_array_) return refuse("an object");
    if (++depth_ == 2 && !in_metadata_) entries.push_back({.name = std::move(key_)});
    return true;
  }

  bool end_object() override {
    if (--depth_ == 1) in_metadata_ = false;
    return true;
  }

  bool start_array(std::size_t) override {
    if (depth_ != 2 || in_metadata_ || in_array_) return refuse("an array");
    if (key_ != "shape" && key_ != "data_offsets") return refuse("an array");
    in_array_ = true;
    return true;
  }

  bool end_array() override {
    in_array_ = false;
    return true;
  }

  bool key(std::string& value) override {
    key_ = std::move(value);
    if (depth_ == 1) in_metadata_ = key_ == "__metadata__";
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    wrong = "it's no JSON at offset " + std::to_string(8 + position);
    return false;
  }

 private:
  bool refuse(const char* what) {
    wrong = std::string("there's ") + what + " where the format has none";
    if (!entries.empty()) wrong += ", near tensor '" + entries.back().name + "'";
    return false;
  }

  std::string key_;
  unsigned depth_ = 0;
  bool in_metadata_ = false;
  bool in_array_ = false;
};

std::optional<DType> dtype_named(std::string_view name) {
  for (const auto& [known, dtype] : safetensors_types) {
    if (known == name) return dtype;
  }
  return std::nullopt;
}

/// A type that the format has got since: its width follows from the size.
std::optional<DType> type_of_width(const Tensor& tensor, std::uint64_t bytes) {
  const auto count = element_count(tensor);
  if (!count || *count == 0 || bytes % *count != 0) return std::nullopt;
  return dtype_of_width(bytes / *count);
}

std::string about(const HeaderEntry& entry) { return "tensor '" + entry.name + "'"; }

/// Adds one entry, whose bytes begin at `at` in the file.
std::optional<std::string> add(HeaderEntry&& entry, std::uint64_t at, UniqueNames& names, Parsed& to) {
  const std::uint64_t size = entry.offsets[1] - entry.offsets[0];
  Tensor tensor;
  tensor.shape = std::move(entry.shape);
  tensor.strides = contiguous_strides(tensor.shape);
  const auto known = dtype_named(entry.type);
  const auto dtype = known ? known : type_of_width(tensor, size);
  if (!dtype) {
    to.note = "type '" + entry.type + "' isn't known";
    return std::nullopt;
  }
  tensor.dtype = *dtype;
  const auto count = element_count(tensor);
  const auto bits = count ? checked_mul(*count, bits_of(*dtype)) : std::nullopt;
  if (!bits || *bits % 8 != 0 || *bits / 8 != size) {
    return about(entry) + " has " + std::to_string(size) + " bytes, which isn't what its shape takes";
  }
  tensor.offset = size == 0 ? 0 : at;
  tensor.name = names.claim(std::move(entry.name));
  to.tensors.push_back(std::move(tensor));
  if (size > 0) to.extents.push_back({at, size, *dtype});
  return std::nullopt;
}

}  // namespace

bool looks_like_safetensors(ByteView head) { return head.size() < 9 || head[8] == std::byte{'{'}; }

Verdict parse_safetensors(const Input& input, Parsed& to) {
  if (input.size() < 8) return Verdict::malformed("cut short: it ends inside the header's length");
  std::array<std::byte, 8> length{};
  input.read(0, length);
  const auto header_size = load_le<std::uint64_t>(length.data());
  if (header_size > max_safetensors_header) {
    return Verdict::malformed("altered: a header of " + std::to_string(header_size) + " bytes, at offset 0");
  }
  if (header_size > input.size() - 8) {
    return Verdict::malformed("cut short: the header should end at offset " + std::to_string(8 + header_size));
  }
  std::string header(static_cast<std::size_t>(header_size), '\0');
  input.read(8, std::as_writable_bytes(std::span(header)));

  HeaderEvents events;
  const bool parsed = nlohmann::json::sax_parse(header, &events);
  if (!parsed) return Verdict::malformed("altered: the header isn't as it should be: " + events.wrong);
  std::vector<HeaderEntry>& entries = events.entries;
  for (const HeaderEntry& entry : entries) {
    if (entry.offsets.size() != 2 || entry.offsets[0] > entry.offsets[1]) {
      return Verdict::malformed("altered: the offsets are wrong of " + about(entry));
    }
    if (entry.type.empty()) return Verdict::malformed("altered: the type is missing of " + about(entry));
  }

  std::vector<std::uint32_t> order(entries.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return entries[a].offsets < entries[b].offsets; });
  const std::uint64_t buffer = 8 + header_size;
  std::uint64_t end = 0;
  for (const std::uint32_t i : order) {
    if (entries[i].offsets[0] != end) {
      return Verdict::malformed("altered: " + about(entries[i]) + " should begin at offset " + std::to_string(end) +
                                " of the buffer");
    }
    end = entries[i].offsets[1];
  }
  const std::uint64_t there = input.size() - buffer;
  if (end > there) {
    return Verdict::malformed("cut short: the buffer should have " + std::to_string(end) + " bytes and has " +
                              std::to_string(there));
  }
  if (end < there) {
    return Verdict::malformed("altered: " + std::to_string(there - end) + " bytes belong to no tensor, at offset " +
                              std::to_string(buffer + end));
  }

  UniqueNames names;
  to.tensors.reserve(entries.size());
  to.extents.reserve(entries.size());
  for (HeaderEntry& entry : entries) {
    const std::uint64_t at = buffer + entry.offsets[0];
    if (auto wrong = add(std::move(entry), at, names, to)) return Verdict::malformed("altered: " + *wrong);
  }
  return {};
}

}  // namespace ckpt::source
