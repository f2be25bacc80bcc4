// SPDX-License-Identifier: Apache-2.0
// Names and widths of the element types, and the arithmetic of strided views.
#include "core/tensor.hpp"

#include "core/bytes.hpp"

#include <array>
#include <limits>

namespace ckpt {
namespace {

struct DTypeTraits {
  std::string_view name;
  unsigned bits;
};

// In the order of the enum.
constexpr std::array<DTypeTraits, dtype_count> dtypes = {{
    {"opaque", 8},           {"float64", 64},    {"float32", 32},        {"float16", 16},        {"bfloat16", 16},
    {"float8_e4m3fn", 8},    {"float8_e5m2", 8}, {"float8_e4m3fnuz", 8}, {"float8_e5m2fnuz", 8}, {"float8_e8m0fnu", 8},
    {"float4_e2m1fn_x2", 8}, {"int64", 64},      {"int32", 32},          {"int16", 16},          {"int8", 8},
    {"uint64", 64},          {"uint32", 32},     {"uint16", 16},         {"uint8", 8},           {"bool", 8},
    {"complex128", 128},     {"complex64", 64},  {"complex32", 32},      {"qint8", 8},           {"quint8", 8},
    {"qint32", 32},          {"quint4x2", 4},    {"quint2x4", 2},        {"bits1x8", 8},         {"bits2x4", 8},
    {"bits4x2", 8},          {"bits8", 8},       {"bits16", 16},         {"float4", 4},          {"float6_e2m3", 6},
    {"float6_e3m2", 6},      {"width8", 8},      {"width16", 16},        {"width32", 32},        {"width64", 64},
    {"width128", 128},
}};

constexpr std::array<std::string_view, layout_count> layouts = {
    "strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "nested", "strided",
};

constexpr std::array<std::string_view, file_kind_count> kinds = {
    "opaque", "torch-zip", "torch-legacy", "safetensors", "dcp-metadata", "distcp", "npy", "npz",
};

std::optional<std::uint64_t> bytes_of_bits(std::uint64_t elements, unsigned bits) {
  const auto total = checked_mul(elements, bits);
  if (!total) return std::nullopt;
  return *total / 8 + (*total % 8 != 0 ? 1 : 0);
}

}  // namespace

std::string_view name_of(DType dtype) { return dtypes.at(static_cast<std::size_t>(dtype)).name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (std::size_t i = 0; i < dtypes.size(); ++i) {
    if (dtypes[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

unsigned bits_of(DType dtype) { return dtypes.at(static_cast<std::size_t>(dtype)).bits; }

std::string_view name_of(Layout layout) { return layouts.at(static_cast<std::size_t>(layout)); }

std::string_view name_of(FileKind kind) { return kinds.at(static_cast<std::size_t>(kind)); }

std::optional<std::uint64_t> element_count(const Tensor& tensor) {
  // A zero anywhere makes the product zero, however large the other dimensions are.
  std::uint64_t count = 1;
  bool empty = false;
  for (const std::int64_t dim : tensor.shape) {
    if (dim < 0) return std::nullopt;
    if (dim == 0) empty = true;
  }
  if (empty) return 0;
  for (const std::int64_t dim : tensor.shape) {
    const auto product = checked_mul(count, static_cast<std::uint64_t>(dim));
    if (!product || *product > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return std::nullopt;
    count = *product;
  }
  return count;
}

std::optional<std::uint64_t> contiguous_bytes(const Tensor& tensor) {
  const auto count = element_count(tensor);
  if (!count) return std::nullopt;
  return bytes_of_bits(*count, bits_of(tensor.dtype));
}

std::optional<std::uint64_t> view_end(const Tensor& tensor) {
  const auto count = element_count(tensor);
  if (!count || tensor.strides.size() != tensor.shape.size()) return std::nullopt;
  if (*count == 0) return tensor.offset;
  std::uint64_t last = 0;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    if (tensor.strides[i] < 0) return std::nullopt;
    const auto reach =
        checked_mul(static_cast<std::uint64_t>(tensor.shape[i] - 1), static_cast<std::uint64_t>(tensor.strides[i]));
    const auto sum = reach ? checked_add(last, *reach) : std::nullopt;
    if (!sum) return std::nullopt;
    last = *sum;
  }
  const auto elements = checked_add(last, 1);
  const auto bytes = elements ? bytes_of_bits(*elements, bits_of(tensor.dtype)) : std::nullopt;
  return bytes ? checked_add(tensor.offset, *bytes) : std::nullopt;
}

bool is_contiguous(const Tensor& tensor) {
  if (tensor.strides.size() != tensor.shape.size()) return false;
  if (element_count(tensor).value_or(1) == 0) return true;
  std::int64_t expected = 1;
  for (std::size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] == 1) continue;
    if (tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

std::vector<std::int64_t> contiguous_strides(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t step = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = step;
    // Unsigned on purpose: a hostile shape must not overflow a signed number; view_end() refuses it later.
    step = static_cast<std::int64_t>(static_cast<std::uint64_t>(step) *
                                     static_cast<std::uint64_t>(shape[i] > 0 ? shape[i] : 1));
  }
  return strides;
}

}  // namespace ckpt
