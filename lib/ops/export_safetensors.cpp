// SPDX-License-Identifier: Apache-2.0
// Tensors as safetensors. They must tile the buffer without gaps, so alignment comes from the order: wide elements
// first, and the header padded to 8 bytes.
#include "ops/export_layout.hpp"

#include "core/bytes.hpp"
#include "format/json_text.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <numeric>
#include <utility>

namespace ckpt::ops {
namespace {

/// The format's own limit.
constexpr std::size_t max_header = 100'000'000;

constexpr std::pair<DType, std::string_view> type_names[] = {
    {DType::boolean, "BOOL"},
    {DType::float4, "F4"},
    {DType::float4_e2m1fn_x2, "F4"},
    {DType::float6_e2m3, "F6_E2M3"},
    {DType::float6_e3m2, "F6_E3M2"},
    {DType::uint8, "U8"},
    {DType::int8, "I8"},
    {DType::float8_e5m2, "F8_E5M2"},
    {DType::float8_e4m3fn, "F8_E4M3"},
    {DType::float8_e8m0fnu, "F8_E8M0"},
    {DType::float8_e5m2fnuz, "F8_E5M2FNUZ"},
    {DType::float8_e4m3fnuz, "F8_E4M3FNUZ"},
    {DType::int16, "I16"},
    {DType::uint16, "U16"},
    {DType::float16, "F16"},
    {DType::bfloat16, "BF16"},
    {DType::int32, "I32"},
    {DType::uint32, "U32"},
    {DType::float32, "F32"},
    {DType::complex64, "C64"},
    {DType::float64, "F64"},
    {DType::int64, "I64"},
    {DType::uint64, "U64"},
};

[[noreturn]] void refuse(const ExportItem& item, const std::string& why) {
  throw Error(Errc::unsupported, "tensor '" + item.tensor.name + "' of '" + item.path + "' " + why)
      .with_hint("use --as=raw for it, and --tensor to choose others");
}

std::string_view type_of(const ExportItem& item) {
  for (const auto& [dtype, name] : type_names) {
    if (dtype == item.tensor.dtype) return name;
  }
  refuse_dtype(item, "safetensors", "use --as=raw for it, and --tensor to choose others");
}

std::vector<std::int64_t> shape_of(const ExportItem& item) {
  std::vector<std::int64_t> shape = item.tensor.shape;
  if (item.tensor.dtype != DType::float4_e2m1fn_x2) return shape;
  // The format counts single values where PyTorch counts pairs.
  if (shape.empty() || shape.back() > INT64_MAX / 2) refuse(item, "has no shape in single 4-bit values");
  shape.back() *= 2;
  return shape;
}

std::string quoted_name(const ExportItem& item) {
  const auto text = format::json_text(item.name);
  if (!text) refuse(item, "has a name that isn't UTF-8");
  return *text;
}

void append_entry(std::string& header, const ExportItem& item, std::uint64_t begin) {
  if (item.name == "__metadata__") refuse(item, "has the name that safetensors keeps for itself");
  const unsigned bits = bits_of(item.tensor.dtype);
  if (bits % 8 != 0 && element_count(item.tensor).value_or(0) * bits % 8 != 0) refuse(item, "ends within a byte");
  header += ',' + quoted_name(item) + ":{\"dtype\":\"" + std::string(type_of(item)) + "\",\"shape\":[";
  const char* separator = "";
  for (const std::int64_t dim : shape_of(item)) {
    header += separator + std::to_string(dim);
    separator = ",";
  }
  header += "],\"data_offsets\":[" + std::to_string(begin) + ',' + std::to_string(begin + item.bytes) + "]}";
}

}  // namespace

ExportLayout lay_out_safetensors(const std::vector<ExportItem>& items) {
  std::vector<std::size_t> order(items.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return bits_of(items[a].tensor.dtype) > bits_of(items[b].tensor.dtype);
  });
  // Loaders ask the metadata for the framework.
  std::string header = R"({"__metadata__":{"format":"pt"})";
  std::uint64_t at = 0;
  for (const std::size_t i : order) {
    append_entry(header, items[i], at);
    at += items[i].bytes;
  }
  header += '}';
  header.resize(align_up(header.size(), 8), ' ');
  if (header.size() > max_header) throw Error(Errc::unsupported, "safetensors can't hold so many tensors");

  std::string length(8, '\0');
  store_le<std::uint64_t>(std::as_writable_bytes(std::span(length)).data(), header.size());
  ExportLayout layout{{.literal = length + header, .item = std::nullopt}};
  for (const std::size_t i : order) layout.push_back({.literal = {}, .item = i});
  return layout;
}

}  // namespace ckpt::ops
