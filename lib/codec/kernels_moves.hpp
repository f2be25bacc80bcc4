// SPDX-License-Identifier: Apache-2.0
// The kernels that move elements to other places: loops that compilers don't vectorise. With AVX512 a vector's elements
// of one kind are packed, or spread, at once.
#pragma once

#include "codec/kernels.hpp"
#include "codec/kernels_basics.hpp"

#ifdef __AVX512VBMI2__
#include <immintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

namespace ckpt::codec {
namespace {

template <class T>
std::uint8_t key_of(T base) {
  return static_cast<std::uint8_t>(static_cast<T>(base << 1U) >> (bits<T> - 8));
}

std::size_t count_bits(const std::byte* in, std::size_t size) {
  std::size_t count = 0;
  std::size_t i = 0;
  for (; i + 8 <= size; i += 8) count += static_cast<std::size_t>(std::popcount(in_as<std::uint64_t>(in + i)->value));
  for (; i < size; ++i) count += static_cast<std::size_t>(std::popcount(std::to_integer<unsigned>(in[i])));
  return count;
}

#ifdef __AVX512VBMI2__

/// What differs between widths: a vector of 64 bytes, and a mask with a bit for each element.
template <class T>
struct Lanes {
  static constexpr std::size_t count = 64 / sizeof(T);
  using Mask = std::conditional_t<
      count == 64, std::uint64_t,
      std::conditional_t<count == 32, std::uint32_t, std::conditional_t<count == 16, std::uint16_t, std::uint8_t>>>;

  static Mask first(std::size_t n) { return static_cast<Mask>(n >= 64 ? ~0ULL : (1ULL << n) - 1); }
  static std::size_t ones(Mask mask) { return static_cast<std::size_t>(__builtin_popcountll(mask)); }
  static __m512i load(const std::byte* p) { return _mm512_loadu_si512(p); }
  static void store(std::byte* p, __m512i v) { _mm512_storeu_si512(p, v); }

  static __m512i load_some(Mask mask, const std::byte* p) {
    if constexpr (sizeof(T) == 1) return _mm512_maskz_loadu_epi8(mask, p);
    if constexpr (sizeof(T) == 2) return _mm512_maskz_loadu_epi16(mask, p);
    if constexpr (sizeof(T) == 4) return _mm512_maskz_loadu_epi32(mask, p);
    if constexpr (sizeof(T) == 8) return _mm512_maskz_loadu_epi64(mask, p);
  }
  static void store_some(std::byte* p, Mask mask, __m512i v) {
    if constexpr (sizeof(T) == 1) _mm512_mask_storeu_epi8(p, mask, v);
    if constexpr (sizeof(T) == 2) _mm512_mask_storeu_epi16(p, mask, v);
    if constexpr (sizeof(T) == 4) _mm512_mask_storeu_epi32(p, mask, v);
    if constexpr (sizeof(T) == 8) _mm512_mask_storeu_epi64(p, mask, v);
  }
  static __m512i pack(Mask mask, __m512i v) {
    if constexpr (sizeof(T) == 1) return _mm512_maskz_compress_epi8(mask, v);
    if constexpr (sizeof(T) == 2) return _mm512_maskz_compress_epi16(mask, v);
    if constexpr (sizeof(T) == 4) return _mm512_maskz_compress_epi32(mask, v);
    if constexpr (sizeof(T) == 8) return _mm512_maskz_compress_epi64(mask, v);
  }
  static __m512i spread(Mask mask, __m512i v) {
    if constexpr (sizeof(T) == 1) return _mm512_maskz_expand_epi8(mask, v);
    if constexpr (sizeof(T) == 2) return _mm512_maskz_expand_epi16(mask, v);
    if constexpr (sizeof(T) == 4) return _mm512_maskz_expand_epi32(mask, v);
    if constexpr (sizeof(T) == 8) return _mm512_maskz_expand_epi64(mask, v);
  }
  static Mask not_zero(__m512i v) {
    if constexpr (sizeof(T) == 1) return _mm512_test_epi8_mask(v, v);
    if constexpr (sizeof(T) == 2) return _mm512_test_epi16_mask(v, v);
    if constexpr (sizeof(T) == 4) return _mm512_test_epi32_mask(v, v);
    if constexpr (sizeof(T) == 8) return _mm512_test_epi64_mask(v, v);
  }
  static __m512i all(T value) {
    if constexpr (sizeof(T) == 1) return _mm512_set1_epi8(static_cast<char>(value));
    if constexpr (sizeof(T) == 2) return _mm512_set1_epi16(static_cast<short>(value));
    if constexpr (sizeof(T) == 4) return _mm512_set1_epi32(static_cast<int>(value));
    if constexpr (sizeof(T) == 8) return _mm512_set1_epi64(static_cast<long long>(value));
  }
  /// v - from <= size, unsigned.
  static Mask lies_in(__m512i v, __m512i from, __m512i size) {
    if constexpr (sizeof(T) == 1) return _mm512_cmple_epu8_mask(_mm512_sub_epi8(v, from), size);
    if constexpr (sizeof(T) == 2) return _mm512_cmple_epu16_mask(_mm512_sub_epi16(v, from), size);
    if constexpr (sizeof(T) == 4) return _mm512_cmple_epu32_mask(_mm512_sub_epi32(v, from), size);
    if constexpr (sizeof(T) == 8) return _mm512_cmple_epu64_mask(_mm512_sub_epi64(v, from), size);
  }
};

/// Calls work(i, mask) for the vectors of a base's elements: which of them, from element i on, are of the group.
template <class T, class Work>
void for_members(const std::byte* base, std::size_t n, const KeyGroups& groups, std::size_t group, Work&& work) {
  using L = Lanes<T>;
  // The keys' range as a range of the elements without their sign. A byte has seven bits of key, and one below.
  constexpr int below = static_cast<int>(bits<T>) - 9;
  const auto lowest = [](unsigned key) {
    return static_cast<T>(below >= 0 ? static_cast<std::uint64_t>(key) << (below >= 0 ? below : 0) : (key + 1) >> 1U);
  };
  const T first = lowest(groups.first_key(group));
  const unsigned after = groups.last_key(group) + 1U;
  const auto last = static_cast<T>((after == 256 ? sign_bit<T> : lowest(after)) - 1U);
  if (last < first) return;
  const __m512i from = L::all(first);
  const __m512i size = L::all(static_cast<T>(last - first));
  const __m512i magnitude = L::all(static_cast<T>(~sign_bit<T>));
  std::size_t i = 0;
  for (; i + L::count <= n; i += L::count) {
    work(i, L::lies_in(_mm512_and_si512(L::load(base + i * sizeof(T)), magnitude), from, size));
  }
  if (i == n) return;
  const auto rest = L::first(n - i);
  const __m512i some = L::load_some(rest, base + i * sizeof(T));
  work(i, static_cast<typename L::Mask>(rest & L::lies_in(_mm512_and_si512(some, magnitude), from, size)));
}

template <class T>
void count_members(const std::byte* base, std::size_t n, const KeyGroups& groups, std::uint32_t* counts) {
  constexpr std::size_t cached = 8192 / sizeof(T);
  for (std::size_t i = 0; i < n; i += cached) {
    for (std::size_t g = 0; g < groups.count(); ++g) {
      std::size_t count = 0;
      for_members<T>(base + i * sizeof(T), std::min(cached, n - i), groups, g,
                     [&](std::size_t, auto mask) { count += Lanes<T>::ones(mask); });
      counts[g] += static_cast<std::uint32_t>(count);
    }
  }
}

template <class T>
void scatter(const std::byte* in, const std::byte* base, std::size_t n, const KeyGroups& groups, std::byte** ends) {
  using L = Lanes<T>;
  for (std::size_t g = 0; g < groups.count(); ++g) {
    std::byte* end = ends[g];
    for_members<T>(base, n, groups, g, [&](std::size_t i, auto mask) {
      const std::byte* const from = in + i * sizeof(T);
      const __m512i v = i + L::count <= n ? L::load(from) : L::load_some(mask, from);
      L::store(end, L::pack(mask, v));
      end += L::ones(mask) * sizeof(T);
    });
    ends[g] = end;
  }
}

template <class T>
void gather(const std::byte** begins, const std::byte* base, std::size_t n, const KeyGroups& groups, std::byte* out) {
  using L = Lanes<T>;
  for (std::size_t g = 0; g < groups.count(); ++g) {
    const std::byte* begin = begins[g];
    for_members<T>(base, n, groups, g, [&](std::size_t i, auto mask) {
      L::store_some(out + i * sizeof(T), mask, L::spread(mask, L::load(begin)));
      begin += L::ones(mask) * sizeof(T);
    });
    begins[g] = begin;
  }
}

template <class T>
std::size_t pack_nonzero(const std::byte* in, std::size_t n, std::byte* out, std::byte* out_bits) {
  using L = Lanes<T>;
  std::byte* end = out;
  std::size_t i = 0;
  for (; i + L::count <= n; i += L::count) {
    const __m512i v = L::load(in + i * sizeof(T));
    const auto mask = L::not_zero(v);
    L::store(end, L::pack(mask, v));
    end += L::ones(mask) * sizeof(T);
    std::memcpy(out_bits + i / 8, &mask, sizeof mask);
  }
  if (i < n) {
    const __m512i v = L::load_some(L::first(n - i), in + i * sizeof(T));
    const auto mask = L::not_zero(v);
    L::store_some(end, L::first(L::ones(mask)), L::pack(mask, v));
    end += L::ones(mask) * sizeof(T);
    std::memcpy(out_bits + i / 8, &mask, (n - i + 7) / 8);
  }
  return static_cast<std::size_t>(end - out) / sizeof(T);
}

template <class T>
void spread_nonzero(const std::byte* in_bits, const std::byte* in, std::size_t n, std::byte* out) {
  using L = Lanes<T>;
  for (std::size_t i = 0; i < n; i += L::count) {
    typename L::Mask mask = 0;
    std::memcpy(&mask, in_bits + i / 8, std::min(sizeof mask, (n - i + 7) / 8));
    const __m512i v = L::spread(mask, L::load(in));
    in += L::ones(mask) * sizeof(T);
    if (i + L::count <= n)
      L::store(out + i * sizeof(T), v);
    else
      L::store_some(out + i * sizeof(T), L::first(n - i), v);
  }
}

#else

template <class T>
void count_members(const std::byte* base, std::size_t n, const KeyGroups& groups, std::uint32_t* counts) {
  // Two tables: neighbours are of one group often, and must not wait for each other.
  std::uint32_t key_counts[2][256] = {};
  const auto* from = in_as<T>(base);
  for (std::size_t i = 0; i < n; ++i) ++key_counts[i & 1U][key_of(from[i].value)];
  for (unsigned key = 0; key < 256; ++key) {
    counts[groups.group_of(static_cast<std::uint8_t>(key))] += key_counts[0][key] + key_counts[1][key];
  }
}

template <class T>
void scatter(const std::byte* in, const std::byte* base, std::size_t n, const KeyGroups& groups, std::byte** ends) {
  for (std::size_t i = 0; i < n; ++i) {
    std::byte*& end = ends[groups.group_of(key_of(in_as<T>(base)[i].value))];
    std::memcpy(end, in + i * sizeof(T), sizeof(T));
    end += sizeof(T);
  }
}

template <class T>
void gather(const std::byte** begins, const std::byte* base, std::size_t n, const KeyGroups& groups, std::byte* out) {
  for (std::size_t i = 0; i < n; ++i) {
    const std::byte*& begin = begins[groups.group_of(key_of(in_as<T>(base)[i].value))];
    std::memcpy(out + i * sizeof(T), begin, sizeof(T));
    begin += sizeof(T);
  }
}

template <class T>
std::size_t pack_nonzero(const std::byte* in, std::size_t n, std::byte* out, std::byte* out_bits) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < n; i += 8) {
    unsigned eight = 0;
    for (std::size_t j = 0; j < std::min<std::size_t>(8, n - i); ++j) {
      const T value = in_as<T>(in)[i + j].value;
      out_as<T>(out)[kept].value = value;
      kept += value != 0 ? 1U : 0U;
      eight |= (value != 0 ? 1U : 0U) << j;
    }
    out_bits[i / 8] = static_cast<std::byte>(eight);
  }
  return kept;
}

template <class T>
void spread_nonzero(const std::byte* in_bits, const std::byte* in, std::size_t n, std::byte* out) {
  std::fill_n(out, n * sizeof(T), std::byte{0});
  for (std::size_t i = 0; i < n; i += 8) {
    for (auto left = std::to_integer<unsigned>(in_bits[i / 8]); left != 0; left &= left - 1) {
      std::memcpy(out + (i + static_cast<unsigned>(std::countr_zero(left))) * sizeof(T), in, sizeof(T));
      in += sizeof(T);
    }
  }
}

#endif

}  // namespace
}  // namespace ckpt::codec
