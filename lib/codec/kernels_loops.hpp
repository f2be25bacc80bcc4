// SPDX-License-Identifier: Apache-2.0
// The loops behind the kernels, written so that compilers vectorise them. Each instruction set's file defines
// CKPT_KERNELS as the name of its set and includes this once: names are of that file alone, so that the linker can't
// take one set's code for another's.
#include "codec/kernels.hpp"
#include "codec/kernels_basics.hpp"
#include "codec/kernels_moves.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace ckpt::codec {
namespace {

template <class T>
T order_map(T u) {
  // All ones for a negative number, whose bits are turned; the sign bit alone for others.
  const T negative = static_cast<T>(-static_cast<T>(u >> (bits<T> - 1)));
  return static_cast<T>(u ^ (negative | sign_bit<T>));
}

template <class T>
T order_unmap(T m) {
  const T positive = static_cast<T>(-static_cast<T>(m >> (bits<T> - 1)));
  return static_cast<T>(m ^ static_cast<T>(~positive | sign_bit<T>));
}

template <class T>
void rotate_left(const std::byte* in, std::size_t n, std::byte* out) {
  const auto* from = in_as<T>(in);
  auto* to = out_as<T>(out);
  for (std::size_t i = 0; i < n; ++i) {
    const T u = from[i].value;
    to[i].value = static_cast<T>(static_cast<T>(u << 1U) | static_cast<T>(u >> (bits<T> - 1)));
  }
}

template <class T>
void rotate_right(const std::byte* in, std::size_t n, std::byte* out) {
  const auto* from = in_as<T>(in);
  auto* to = out_as<T>(out);
  for (std::size_t i = 0; i < n; ++i) {
    const T u = from[i].value;
    to[i].value = static_cast<T>(static_cast<T>(u >> 1U) | static_cast<T>(u << (bits<T> - 1)));
  }
}

template <class T>
void difference(const std::byte* values, const std::byte* base, NumberKind kind, std::size_t n, std::byte* out) {
  const auto* v = in_as<T>(values);
  const auto* b = in_as<T>(base);
  auto* to = out_as<T>(out);
  if (kind == NumberKind::integer) {
    for (std::size_t i = 0; i < n; ++i) to[i].value = static_cast<T>(v[i].value - b[i].value);
  } else {
    for (std::size_t i = 0; i < n; ++i) {
      to[i].value = static_cast<T>(order_map(v[i].value) - order_map(b[i].value));
    }
  }
}

template <class T>
void add(const std::byte* differences, const std::byte* base, NumberKind kind, std::size_t n, std::byte* out) {
  const auto* d = in_as<T>(differences);
  const auto* b = in_as<T>(base);
  auto* to = out_as<T>(out);
  if (kind == NumberKind::integer) {
    for (std::size_t i = 0; i < n; ++i) to[i].value = static_cast<T>(d[i].value + b[i].value);
  } else {
    for (std::size_t i = 0; i < n; ++i) {
      to[i].value = order_unmap(static_cast<T>(order_map(b[i].value) + d[i].value));
    }
  }
}

template <class T>
void exclusive_or(const std::byte* a, const std::byte* b, std::size_t n, std::byte* out) {
  const auto* x = in_as<T>(a);
  const auto* y = in_as<T>(b);
  auto* to = out_as<T>(out);
  for (std::size_t i = 0; i < n; ++i) to[i].value = static_cast<T>(x[i].value ^ y[i].value);
}

template <class T>
void zigzag(const std::byte* in, T center, std::size_t n, std::byte* out) {
  const auto* from = in_as<T>(in);
  auto* to = out_as<T>(out);
  for (std::size_t i = 0; i < n; ++i) {
    const T d = static_cast<T>(from[i].value - center);
    const T negative = static_cast<T>(-static_cast<T>(d >> (bits<T> - 1)));
    to[i].value = static_cast<T>(static_cast<T>(d << 1U) ^ negative);
  }
}

template <class T>
void unzigzag(const std::byte* in, T center, std::size_t n, std::byte* out) {
  const auto* from = in_as<T>(in);
  auto* to = out_as<T>(out);
  for (std::size_t i = 0; i < n; ++i) {
    const T z = from[i].value;
    const T d = static_cast<T>(static_cast<T>(z >> 1U) ^ static_cast<T>(-static_cast<T>(z & 1U)));
    to[i].value = static_cast<T>(d + center);
  }
}

template <class T>
void recenter(const std::byte* in, T center, std::size_t n, std::byte* out) {
  const auto* from = in_as<T>(in);
  auto* to = out_as<T>(out);
  for (std::size_t i = 0; i < n; ++i) to[i].value = static_cast<T>(from[i].value - center);
}

template <class T>
void keys(const std::byte* in, std::size_t n, std::uint8_t* out) {
  const auto* from = in_as<T>(in);
  for (std::size_t i = 0; i < n; ++i) {
    out[i] = static_cast<std::uint8_t>(static_cast<T>(from[i].value << 1U) >> (bits<T> - 8));
  }
}

template <class T>
void split(const std::byte* in, std::size_t n, std::byte* const* planes) {
  const auto* from = in_as<T>(in);
  // All planes at once, of which __restrict says that they're apart; of a wide element, one half after the other.
  if constexpr (sizeof(T) == 1) {
    std::copy_n(in, n, planes[0]);
  } else if constexpr (sizeof(T) == 2) {
    std::byte* __restrict const p0 = planes[0];
    std::byte* __restrict const p1 = planes[1];
    for (std::size_t i = 0; i < n; ++i) {
      const T u = from[i].value;
      p0[i] = static_cast<std::byte>(u);
      p1[i] = static_cast<std::byte>(u >> 8U);
    }
  } else {
    for (unsigned half = 0; half < sizeof(T) / 4; ++half) {
      std::byte* __restrict const p0 = planes[half * 4];
      std::byte* __restrict const p1 = planes[half * 4 + 1];
      std::byte* __restrict const p2 = planes[half * 4 + 2];
      std::byte* __restrict const p3 = planes[half * 4 + 3];
      for (std::size_t i = 0; i < n; ++i) {
        const auto u = static_cast<std::uint32_t>(from[i].value >> (half * 32));
        p0[i] = static_cast<std::byte>(u);
        p1[i] = static_cast<std::byte>(u >> 8U);
        p2[i] = static_cast<std::byte>(u >> 16U);
        p3[i] = static_cast<std::byte>(u >> 24U);
      }
    }
  }
}

template <class T>
void join(const std::byte* const* planes, std::size_t n, std::byte* out) {
  auto* to = out_as<T>(out);
  if constexpr (sizeof(T) == 1) {
    std::copy_n(planes[0], n, out);
  } else if constexpr (sizeof(T) == 2) {
    const std::byte* __restrict const p0 = planes[0];
    const std::byte* __restrict const p1 = planes[1];
    for (std::size_t i = 0; i < n; ++i) {
      to[i].value = static_cast<T>(std::to_integer<T>(p0[i]) | std::to_integer<T>(p1[i]) << 8U);
    }
  } else {
    for (unsigned half = 0; half < sizeof(T) / 4; ++half) {
      const std::byte* __restrict const p0 = planes[half * 4];
      const std::byte* __restrict const p1 = planes[half * 4 + 1];
      const std::byte* __restrict const p2 = planes[half * 4 + 2];
      const std::byte* __restrict const p3 = planes[half * 4 + 3];
      for (std::size_t i = 0; i < n; ++i) {
        const std::uint32_t u = std::to_integer<std::uint32_t>(p0[i]) | std::to_integer<std::uint32_t>(p1[i]) << 8U |
                                std::to_integer<std::uint32_t>(p2[i]) << 16U |
                                std::to_integer<std::uint32_t>(p3[i]) << 24U;
        to[i].value = half == 0 ? T{u} : static_cast<T>(to[i].value | static_cast<T>(u) << (half * 32));
      }
    }
  }
}

void to_bfloat16(const std::byte* in, std::size_t n, std::byte* out) {
  const auto* from = in_as<std::uint32_t>(in);
  auto* to = out_as<std::uint16_t>(out);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t u = from[i].value;
    const std::uint32_t rounded = u + 0x7fffU + ((u >> 16U) & 1U);
    const bool is_nan = (u & 0x7fffffffU) > 0x7f800000U;
    to[i].value = static_cast<std::uint16_t>(is_nan ? 0x7fc0U : rounded >> 16U);
  }
}

void to_float16(const std::byte* in, std::size_t n, std::byte* out) {
  const auto* from = in_as<std::uint32_t>(in);
  auto* to = out_as<std::uint16_t>(out);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t u = from[i].value;
    const std::uint32_t sign = (u >> 16U) & 0x8000U;
    const std::uint32_t magnitude = u & 0x7fffffffU;
    // Normal numbers: the exponent is rebiased, and a carry out of the fraction goes into it as it should.
    const std::uint32_t normal = (magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13U) & 1U)) >> 13U;
    // Subnormal ones: adding one half makes the hardware round to units of 2^-24, ties to even.
    float small = 0;
    std::memcpy(&small, &magnitude, sizeof small);
    small += 0.5F;
    std::uint32_t subnormal = 0;
    std::memcpy(&subnormal, &small, sizeof subnormal);
    subnormal -= 0x3f000000U;
    std::uint32_t half = magnitude < 0x38800000U ? subnormal : normal;
    half = magnitude >= 0x477ff000U ? 0x7c00U : half;
    half = magnitude > 0x7f800000U ? 0x7e00U : half;
    to[i].value = static_cast<std::uint16_t>(sign | half);
  }
}

template <class T>
constexpr Kernels<T> kernels_of() {
  return {.rotate_left = rotate_left<T>,
          .rotate_right = rotate_right<T>,
          .difference = difference<T>,
          .add = add<T>,
          .exclusive_or = exclusive_or<T>,
          .zigzag = zigzag<T>,
          .unzigzag = unzigzag<T>,
          .recenter = recenter<T>,
          .keys = keys<T>,
          .split = split<T>,
          .join = join<T>,
          .count_members = count_members<T>,
          .scatter = scatter<T>,
          .gather = gather<T>,
          .pack_nonzero = pack_nonzero<T>,
          .spread_nonzero = spread_nonzero<T>};
}

}  // namespace

extern const KernelSet CKPT_KERNELS;
const KernelSet CKPT_KERNELS = {.u8 = kernels_of<std::uint8_t>(),
                                .u16 = kernels_of<std::uint16_t>(),
                                .u32 = kernels_of<std::uint32_t>(),
                                .u64 = kernels_of<std::uint64_t>(),
                                .round = {.to_bfloat16 = to_bfloat16, .to_float16 = to_float16},
                                .count_bits = count_bits};

}  // namespace ckpt::codec
