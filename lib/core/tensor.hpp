// SPDX-License-Identifier: Apache-2.0
// What a parser finds in a file and the catalog keeps: element types, typed byte ranges, tensors as strided views.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt {

/// Element types. The numbers are part of the on-disk format (ckpt-format(5)): never reuse one.
enum class DType : std::uint8_t {
  opaque = 0,  ///< bytes without a type
  float64 = 1,
  float32 = 2,
  float16 = 3,
  bfloat16 = 4,
  float8_e4m3fn = 5,
  float8_e5m2 = 6,
  float8_e4m3fnuz = 7,
  float8_e5m2fnuz = 8,
  float8_e8m0fnu = 9,
  float4_e2m1fn_x2 = 10,  ///< two values a byte
  int64 = 11,
  int32 = 12,
  int16 = 13,
  int8 = 14,
  uint64 = 15,
  uint32 = 16,
  uint16 = 17,
  uint8 = 18,
  boolean = 19,  ///< "bool"
  complex128 = 20,
  complex64 = 21,
  complex32 = 22,
  qint8 = 23,
  quint8 = 24,
  qint32 = 25,
  quint4x2 = 26,
  quint2x4 = 27,
  bits1x8 = 28,
  bits2x4 = 29,
  bits4x2 = 30,
  bits8 = 31,
  bits16 = 32,
  float4 = 33,       ///< safetensors F4: 4 bits a value
  float6_e2m3 = 34,  ///< 6 bits a value
  float6_e3m2 = 35,  ///< 6 bits a value
  /// No name here for this type: its width alone is known.
  width8 = 36,
  width16 = 37,
  width32 = 38,
  width64 = 39,
  width128 = 40,
};
inline constexpr std::uint8_t dtype_count = 41;

/// "float32", "bool", ...: PyTorch's names where it has one.
[[nodiscard]] std::string_view name_of(DType dtype);
[[nodiscard]] std::optional<DType> dtype_from_name(std::string_view name);
/// Bits that one element takes; 8 for opaque.
[[nodiscard]] unsigned bits_of(DType dtype);
/// Of so many elements together; elements of less than a byte share bytes.
[[nodiscard]] inline std::uint64_t bytes_of(std::uint64_t elements, DType dtype) {
  return (elements * bits_of(dtype) + 7) / 8;
}

/// How a tensor's values are laid out. Numbers are part of the on-disk format.
enum class Layout : std::uint8_t {
  strided = 0,
  sparse_coo = 1,
  sparse_csr = 2,
  sparse_csc = 3,
  sparse_bsr = 4,
  sparse_bsc = 5,
  nested = 6,     ///< ragged: its values are the part `name.values` or `name.buffer`
  quantized = 7,  ///< strided integers with scale and zero point
};
inline constexpr std::uint8_t layout_count = 8;
[[nodiscard]] std::string_view name_of(Layout layout);  ///< quantized is "strided", as PyTorch says

/// A range of a file whose bytes are elements of one type.
struct Extent {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  DType dtype = DType::opaque;

  friend bool operator==(const Extent&, const Extent&) = default;
};

/// A named, typed, strided view on bytes of a file.
struct Tensor {
  std::string name;
  DType dtype = DType::opaque;
  Layout layout = Layout::strided;
  bool has_bytes = true;     ///< false: meta tensors, and a sparse tensor whose parts are listed beside it
  bool conjugate = false;    ///< the stored values are conjugated on reading
  bool negative = false;     ///< the stored values are negated on reading
  std::uint64_t offset = 0;  ///< where in the file element [0, 0, ...] starts, in bytes; 0 without bytes or elements
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;         ///< in elements, as many as shape; never negative
  std::vector<std::int64_t> global_shape;    ///< as many as shape, or empty: not sharded
  std::vector<std::int64_t> global_offsets;  ///< as many as global_shape

  friend bool operator==(const Tensor&, const Tensor&) = default;
};

/// Product of the shape; nothing if a dimension is negative or the product passes 2^63.
[[nodiscard]] std::optional<std::uint64_t> element_count(const Tensor& tensor);
/// Bytes of the contiguous form (sub-byte types rounded up); nothing where element_count() has nothing.
[[nodiscard]] std::optional<std::uint64_t> contiguous_bytes(const Tensor& tensor);
/// One past the last byte of the file that the view can touch, or nothing on overflow. `offset` if it's empty.
[[nodiscard]] std::optional<std::uint64_t> view_end(const Tensor& tensor);
/// True if the elements lie in order without gaps.
[[nodiscard]] bool is_contiguous(const Tensor& tensor);
/// Row-major strides of a shape.
[[nodiscard]] std::vector<std::int64_t> contiguous_strides(const std::vector<std::int64_t>& shape);

/// What kind of file a parser recognised. Numbers are part of the on-disk format.
enum class FileKind : std::uint8_t {
  opaque = 0,
  torch_zip = 1,
  torch_legacy = 2,
  safetensors = 3,
  dcp_metadata = 4,
  distcp = 5,
  npy = 6,
  npz = 7,
};
inline constexpr std::uint8_t file_kind_count = 8;
[[nodiscard]] std::string_view name_of(FileKind kind);  ///< "torch-zip", "torch-legacy", ...

}  // namespace ckpt
