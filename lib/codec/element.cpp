// SPDX-License-Identifier: Apache-2.0
#include "codec/element.hpp"

namespace ckpt::codec {

Element element_of(DType dtype) {
  switch (dtype) {
    case DType::float64:
    case DType::complex128: return {.kind = NumberKind::floating, .width = 8};
    case DType::float32:
    case DType::complex64: return {.kind = NumberKind::floating, .width = 4};
    case DType::float16:
    case DType::bfloat16:
    case DType::complex32: return {.kind = NumberKind::floating, .width = 2};
    case DType::float8_e4m3fn:
    case DType::float8_e5m2:
    case DType::float8_e4m3fnuz:
    case DType::float8_e5m2fnuz: return {.kind = NumberKind::floating, .width = 1};
    case DType::int64:
    case DType::uint64:
    case DType::width64: return {.kind = NumberKind::integer, .width = 8};
    case DType::int32:
    case DType::uint32:
    case DType::qint32:
    case DType::width32: return {.kind = NumberKind::integer, .width = 4};
    case DType::int16:
    case DType::uint16:
    case DType::bits16:
    case DType::width16: return {.kind = NumberKind::integer, .width = 2};
    case DType::width128: return {.kind = NumberKind::integer, .width = 8};
    case DType::opaque:
    case DType::float8_e8m0fnu:
    case DType::float4_e2m1fn_x2:
    case DType::int8:
    case DType::uint8:
    case DType::boolean:
    case DType::qint8:
    case DType::quint8:
    case DType::quint4x2:
    case DType::quint2x4:
    case DType::bits1x8:
    case DType::bits2x4:
    case DType::bits4x2:
    case DType::bits8:
    case DType::float4:
    case DType::float6_e2m3:
    case DType::float6_e3m2:
    case DType::width8: return {.kind = NumberKind::integer, .width = 1};
  }
  return {};
}

bool is_untyped(DType dtype) {
  switch (dtype) {
    case DType::opaque:
    case DType::width16:
    case DType::width32:
    case DType::width64:
    case DType::width128: return true;
    default: return false;
  }
}

}  // namespace ckpt::codec
