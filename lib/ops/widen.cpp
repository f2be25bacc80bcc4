// SPDX-License-Identifier: Apache-2.0
#include "ops/widen.hpp"

#include "core/float_formats.hpp"

#include <cstring>

namespace ckpt::ops {
namespace {

template <class Stored, class Convert>
void widen_as(ByteView from, std::size_t first, std::size_t count, Widened& to, Convert convert) {
  const std::byte* const at = from.data() + first * sizeof(Stored);
  for (std::size_t i = 0; i < count; ++i) {
    Stored value;
    std::memcpy(&value, at + i * sizeof(Stored), sizeof value);
    to[i] = static_cast<double>(convert(value));
  }
}

template <class Stored>
void widen_as(ByteView from, std::size_t first, std::size_t count, Widened& to) {
  widen_as<Stored>(from, first, count, to, [](Stored value) { return value; });
}

void widen_bits(ByteView from, std::size_t first, std::size_t count, Widened& to, unsigned bits,
                const std::array<float, 256>* values) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t bit = (first + i) * bits;
    unsigned pair = std::to_integer<unsigned>(from[bit / 8]);
    if (bit % 8 + bits > 8) pair |= std::to_integer<unsigned>(from[bit / 8 + 1]) << 8U;
    const unsigned code = (pair >> (bit % 8)) & ((1U << bits) - 1);
    to[i] = values != nullptr ? double{(*values)[code]} : double{static_cast<float>(code)};
  }
}

}  // namespace

Numbers numbers_of(DType dtype) {
  switch (dtype) {
    case DType::complex128:
    case DType::complex64:
    case DType::complex32: return {.bits = bits_of(dtype) / 2, .per_element = 2};
    case DType::float4_e2m1fn_x2: return {.bits = 4, .per_element = 2};
    default: return {.bits = bits_of(dtype), .per_element = 1};
  }
}

void widen(DType dtype, ByteView from, std::size_t first, std::size_t count, Widened& to) {
  switch (dtype) {
    case DType::float64:
    case DType::complex128: return widen_as<double>(from, first, count, to);
    case DType::float32:
    case DType::complex64: return widen_as<float>(from, first, count, to);
    case DType::float16:
    case DType::complex32: return widen_as<std::uint16_t>(from, first, count, to, decode_float16);
    case DType::bfloat16: return widen_as<std::uint16_t>(from, first, count, to, decode_bfloat16);
    case DType::int64: return widen_as<std::int64_t>(from, first, count, to);
    case DType::int32:
    case DType::qint32: return widen_as<std::int32_t>(from, first, count, to);
    case DType::int16: return widen_as<std::int16_t>(from, first, count, to);
    case DType::int8:
    case DType::qint8: return widen_as<std::int8_t>(from, first, count, to);
    case DType::uint64: return widen_as<std::uint64_t>(from, first, count, to);
    case DType::uint32: return widen_as<std::uint32_t>(from, first, count, to);
    case DType::uint16: return widen_as<std::uint16_t>(from, first, count, to);
    case DType::uint8:
    case DType::quint8: return widen_as<std::uint8_t>(from, first, count, to);
    case DType::boolean: return widen_as<std::uint8_t>(from, first, count, to, [](std::uint8_t v) { return v != 0; });
    default: return widen_bits(from, first, count, to, numbers_of(dtype).bits, small_float_values(dtype));
  }
}

bool is_numeric(DType dtype) {
  switch (dtype) {
    case DType::opaque:
    case DType::bits1x8:
    case DType::bits2x4:
    case DType::bits4x2:
    case DType::bits8:
    case DType::bits16:
    case DType::width8:
    case DType::width16:
    case DType::width32:
    case DType::width64:
    case DType::width128: return false;
    default: return true;
  }
}

}  // namespace ckpt::ops
