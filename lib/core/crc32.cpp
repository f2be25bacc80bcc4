// SPDX-License-Identifier: Apache-2.0
// Eight tables, so that eight bytes are taken at a time: "slicing by 8", M. Kounavis and F. Berry, 2005. Where the
// processor multiplies polynomials, 64 bytes are folded at a time: V. Gopal et al., "Fast CRC Computation for Generic
// Polynomials Using PCLMULQDQ Instruction", Intel, 2009.
#include "core/crc32.hpp"

#include <array>
#include <iterator>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace ckpt {
namespace {

constexpr std::uint32_t polynomial = 0xedb88320U;
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? polynomial : 0);
    tables[0][byte] = crc;
  }
  for (std::size_t t = 1; t < 8; ++t) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[t - 1][byte];
      tables[t][byte] = (before >> 8U) ^ tables[0][before & 0xffU];
    }
  }
  return tables;
}
constexpr Tables tables = make_tables();

std::uint32_t by_tables(std::uint32_t state, const std::byte* at, std::size_t left) {
  for (; left >= 8; left -= 8, at += 8) {
    const std::uint64_t word = load_le<std::uint64_t>(at) ^ state;
    state = 0;
    for (std::size_t i = 0; i < 8; ++i) state ^= tables[7 - i][(word >> (8 * i)) & 0xffU];
  }
  for (; left > 0; --left, ++at) state = (state >> 8U) ^ tables[0][(state ^ static_cast<std::uint32_t>(*at)) & 0xffU];
  return state;
}

#ifdef __x86_64__

constexpr std::size_t lane = 16;
constexpr std::size_t fold_stride = 4 * lane;

#define CKPT_FOLDING __attribute__((target("pclmul,sse4.1")))

CKPT_FOLDING __m128i load_lane(const std::byte* at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); }

/// x, moved on by the distance that `powers` stand for, added to what's there.
CKPT_FOLDING __m128i fold(__m128i x, __m128i powers, __m128i there) {
  const __m128i low = _mm_clmulepi64_si128(x, powers, 0x00);
  const __m128i high = _mm_clmulepi64_si128(x, powers, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), there);
}

/// `size` is a multiple of a lane, and at least a stride. The constants are powers of x modulo the polynomial,
/// bit-reflected, as the paper derives them.
CKPT_FOLDING std::uint32_t by_folding(std::uint32_t state, const std::byte* at, std::size_t size) {
  const __m128i by_stride = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
  const __m128i by_lane = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
  const __m128i to_64_bits = _mm_set_epi64x(0, 0x0163cd6124);
  const __m128i reduction = _mm_set_epi64x(0x01f7011641, 0x01db710641);  // Barrett's quotient, the polynomial
  const __m128i low_words = _mm_set_epi32(0, -1, 0, -1);

  __m128i x[4];  // a plain array: templates drop the attributes of vector types
  for (std::size_t i = 0; i < std::size(x); ++i) x[i] = load_lane(at + i * lane);
  x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128(static_cast<int>(state)));
  at += fold_stride;
  size -= fold_stride;
  for (; size >= fold_stride; size -= fold_stride, at += fold_stride) {
    for (std::size_t i = 0; i < std::size(x); ++i) x[i] = fold(x[i], by_stride, load_lane(at + i * lane));
  }
  __m128i sum = x[0];
  for (std::size_t i = 1; i < std::size(x); ++i) sum = fold(sum, by_lane, x[i]);
  for (; size >= lane; size -= lane, at += lane) sum = fold(sum, by_lane, load_lane(at));

  sum = _mm_xor_si128(_mm_srli_si128(sum, 8), _mm_clmulepi64_si128(sum, by_lane, 0x10));
  sum = _mm_xor_si128(_mm_srli_si128(sum, 4), _mm_clmulepi64_si128(_mm_and_si128(sum, low_words), to_64_bits, 0x00));
  const __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(sum, low_words), reduction, 0x10);
  sum = _mm_xor_si128(sum, _mm_clmulepi64_si128(_mm_and_si128(quotient, low_words), reduction, 0x00));
  return static_cast<std::uint32_t>(_mm_extract_epi32(sum, 1));
}

bool can_fold() {
  static const bool can = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
  return can;
}

#endif

}  // namespace

std::uint32_t crc32(std::uint32_t crc, ByteView data) {
  std::uint32_t state = ~crc;
#ifdef __x86_64__
  if (data.size() >= fold_stride && can_fold()) {
    const std::size_t whole = data.size() / lane * lane;
    state = by_folding(state, data.data(), whole);
    data = data.subspan(whole);
  }
#endif
  return ~by_tables(state, data.data(), data.size());
}

std::uint32_t crc32_by_tables(std::uint32_t crc, ByteView data) { return ~by_tables(~crc, data.data(), data.size()); }

// Appending n zero bytes multiplies by x^8n modulo the polynomial, in arithmetic over GF(2).
std::uint32_t crc32_of_both(std::uint32_t a, std::uint32_t b, std::uint64_t size_of_b) {
  const auto times = [](std::uint32_t p, std::uint32_t q) {
    std::uint32_t product = 0;
    for (std::uint32_t bit = 1U << 31U; bit != 0; bit >>= 1U) {
      if ((p & bit) != 0) product ^= q;
      q = (q & 1U) != 0 ? (q >> 1U) ^ polynomial : q >> 1U;
    }
    return product;
  };
  std::uint32_t power = 1U << 23U;  // x^8
  for (std::uint64_t n = size_of_b; n != 0; n >>= 1U) {
    if ((n & 1U) != 0) a = times(power, a);
    power = times(power, power);
  }
  return a ^ b;
}

}  // namespace ckpt
