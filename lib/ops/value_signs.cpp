// SPDX-License-Identifier: Apache-2.0
#include "ops/value_signs.hpp"

#include <cstddef>

namespace ckpt::ops {
namespace {

/// Negates the numbers `first`, `first` + `step`, ...
template <class T, class Negate>
void negate_each(Bytes& values, std::size_t first, std::size_t step, Negate negate) {
  for (std::size_t at = first * sizeof(T); at + sizeof(T) <= values.size(); at += step * sizeof(T)) {
    store_le(values.data() + at, static_cast<T>(negate(load_le<T>(values.data() + at))));
  }
}

/// Floats are negated by their sign bit, NaN included.
template <class T>
void flip_signs(Bytes& values, std::size_t first, std::size_t step) {
  negate_each<T>(values, first, step, [](T v) { return v ^ static_cast<T>(T{1} << (8 * sizeof(T) - 1)); });
}

template <class T>
void negate_integers(Bytes& values) {
  negate_each<T>(values, 0, 1, [](T v) { return T{0} - v; });
}

template <class T>
void resolve_complex(const Tensor& tensor, Bytes& values) {
  if (tensor.negative) flip_signs<T>(values, 0, 2);
  if (tensor.negative != tensor.conjugate) flip_signs<T>(values, 1, 2);
}

bool is_complex(DType dtype) {
  return dtype == DType::complex128 || dtype == DType::complex64 || dtype == DType::complex32;
}

}  // namespace

ByteView resolve_signs(const Tensor& tensor, ByteView elements, Bytes& scratch) {
  const bool changes = tensor.negative || (tensor.conjugate && is_complex(tensor.dtype));
  if (!changes) return elements;
  scratch.assign(elements.begin(), elements.end());
  switch (tensor.dtype) {
    case DType::complex128: resolve_complex<std::uint64_t>(tensor, scratch); break;
    case DType::complex64: resolve_complex<std::uint32_t>(tensor, scratch); break;
    case DType::complex32: resolve_complex<std::uint16_t>(tensor, scratch); break;
    case DType::float64: flip_signs<std::uint64_t>(scratch, 0, 1); break;
    case DType::float32: flip_signs<std::uint32_t>(scratch, 0, 1); break;
    case DType::float16:
    case DType::bfloat16: flip_signs<std::uint16_t>(scratch, 0, 1); break;
    case DType::float8_e4m3fn:
    case DType::float8_e5m2: flip_signs<std::uint8_t>(scratch, 0, 1); break;
    case DType::int64: negate_integers<std::uint64_t>(scratch); break;
    case DType::int32: negate_integers<std::uint32_t>(scratch); break;
    case DType::int16: negate_integers<std::uint16_t>(scratch); break;
    case DType::int8: negate_integers<std::uint8_t>(scratch); break;
    default: return elements;
  }
  return scratch;
}

}  // namespace ckpt::ops
