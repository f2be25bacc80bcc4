// SPDX-License-Identifier: Apache-2.0
// One tensor as NumPy's own format, version 1.0: magic, a Python dict literal padded to 64 bytes, the elements.
#include "ops/export_layout.hpp"

#include "core/bytes.hpp"

#include <algorithm>
#include <utility>

namespace ckpt::ops {
namespace {

constexpr std::pair<DType, std::string_view> descriptions[] = {
    {DType::float64, "<f8"},   {DType::float32, "<f4"},     {DType::float16, "<f2"}, {DType::int64, "<i8"},
    {DType::int32, "<i4"},     {DType::int16, "<i2"},       {DType::int8, "|i1"},    {DType::uint64, "<u8"},
    {DType::uint32, "<u4"},    {DType::uint16, "<u2"},      {DType::uint8, "|u1"},   {DType::boolean, "|b1"},
    {DType::complex64, "<c8"}, {DType::complex128, "<c16"},
};

std::string shape_literal(const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

}  // namespace

std::string npy_header(const ExportItem& item) {
  const auto* const known = std::find_if(std::begin(descriptions), std::end(descriptions),
                                         [&](const auto& pair) { return pair.first == item.tensor.dtype; });
  if (known == std::end(descriptions)) refuse_dtype(item, "numpy", "use --as=raw or --as=safetensors");
  std::string dict = "{'descr': '" + std::string(known->second) +
                     "', 'fortran_order': False, 'shape': " + shape_literal(item.tensor.shape) + ", }";
  constexpr std::size_t before = 10;  // magic, version, length
  const std::size_t whole = align_up(before + dict.size() + 1, 64);
  dict.resize(whole - before - 1, ' ');
  dict += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(dict.size() & 0xffU);
  header += static_cast<char>(dict.size() >> 8U);
  return header + dict;
}

ExportLayout lay_out_npy(const std::vector<ExportItem>& items) {
  return {{.literal = npy_header(items.front()), .item = 0}};
}

}  // namespace ckpt::ops
