// SPDX-License-Identifier: Apache-2.0
// The hot loops of the codecs: each does one thing to many elements, and is compiled for several instruction sets, of
// which the best one is taken when the program runs.
#pragma once

#include "codec/element.hpp"
#include "codec/key_groups.hpp"

#include <cstddef>
#include <cstdint>

namespace ckpt::codec {

/// What the kernels that move elements may write, or read, behind the last one of those: a vector.
inline constexpr std::size_t move_slack = 64;

/// Elements of T, an unsigned integer, little-endian, anywhere in memory. Outputs never overlap inputs, unless they're
/// the same.
///
/// The order map turns floating point bits to integers that are ordered as the numbers are, with -0 just below +0, and
/// is its own inverse but for one bit; so a small change of a number is a small difference of integers, across zero as
/// well. (Lindstrom, Isenburg: Fast and Efficient Compression of Floating-Point Data, 2006.)
template <class T>
struct Kernels {
  /// The sign bit to the lowest place: what's above is the exponent.
  void (*rotate_left)(const std::byte* in, std::size_t n, std::byte* out);
  void (*rotate_right)(const std::byte* in, std::size_t n, std::byte* out);
  /// out = map(value) - map(base), modulo 2^bits; the map is the identity for integers.
  void (*difference)(const std::byte* values, const std::byte* base, NumberKind kind, std::size_t n, std::byte* out);
  /// The inverse: out = unmap(map(base) + difference).
  void (*add)(const std::byte* differences, const std::byte* base, NumberKind kind, std::size_t n, std::byte* out);
  void (*exclusive_or)(const std::byte* a, const std::byte* b, std::size_t n, std::byte* out);
  /// out = zigzag(in - center): 0, -1, 1, -2, ... become 0, 1, 2, 3, ...
  void (*zigzag)(const std::byte* in, T center, std::size_t n, std::byte* out);
  void (*unzigzag)(const std::byte* in, T center, std::size_t n, std::byte* out);
  /// out = in - center
  void (*recenter)(const std::byte* in, T center, std::size_t n, std::byte* out);
  /// One byte an element: its eight bits below the sign, which is the exponent of a float32 or bfloat16.
  void (*keys)(const std::byte* in, std::size_t n, std::uint8_t* out);
  /// A plane for each byte of an element, the lowest first: n bytes at each pointer.
  void (*split)(const std::byte* in, std::size_t n, std::byte* const* planes);
  /// The inverse.
  void (*join)(const std::byte* const* planes, std::size_t n, std::byte* out);
  /// Adds to each group's count how many of the base's elements have a key of it.
  void (*count_members)(const std::byte* base, std::size_t n, const KeyGroups& groups, std::uint32_t* counts);
  /// Puts each element behind those that its group has: the groups' ends move on. Best for what a cache holds. Writes
  /// move_slack bytes after them.
  void (*scatter)(const std::byte* in, const std::byte* base, std::size_t n, const KeyGroups& groups, std::byte** ends);
  /// The inverse: takes each element from the front of its group. Reads move_slack bytes after the groups' begins.
  void (*gather)(const std::byte** begins, const std::byte* base, std::size_t n, const KeyGroups& groups,
                 std::byte* out);
  /// Moves the elements that aren't zero to the front of `out`, which has room for all, and sets a bit for each, the
  /// first one lowest. Returns how many.
  std::size_t (*pack_nonzero)(const std::byte* in, std::size_t n, std::byte* out, std::byte* bits);
  /// The inverse: there's an element for each bit, and no bit behind the n-th. Reads move_slack bytes after `in`.
  void (*spread_nonzero)(const std::byte* bits, const std::byte* in, std::size_t n, std::byte* out);
};

/// Roundings of float32 to 16 bits, to nearest, ties to even, as PyTorch does it: a NaN of bfloat16 is 0x7fc0 or
/// 0xffc0... whatever the rounding of other NaNs is, a wrong guess costs bytes and never correctness.
struct RoundingKernels {
  void (*to_bfloat16)(const std::byte* in, std::size_t n, std::byte* out);
  void (*to_float16)(const std::byte* in, std::size_t n, std::byte* out);
};

struct KernelSet {
  Kernels<std::uint8_t> u8;
  Kernels<std::uint16_t> u16;
  Kernels<std::uint32_t> u32;
  Kernels<std::uint64_t> u64;
  RoundingKernels round;
  std::size_t (*count_bits)(const std::byte* in, std::size_t size);

  template <class T>
  [[nodiscard]] const Kernels<T>& of() const {
    if constexpr (sizeof(T) == 1)
      return u8;
    else if constexpr (sizeof(T) == 2)
      return u16;
    else if constexpr (sizeof(T) == 4)
      return u32;
    else
      return u64;
  }
};

enum class InstructionSet : std::uint8_t { plain, avx2, avx512 };

/// The kernels for one instruction set; null if this processor or this build hasn't got it.
[[nodiscard]] const KernelSet* kernels_for(InstructionSet set);
/// The best there is here.
[[nodiscard]] const KernelSet& kernels();

}  // namespace ckpt::codec
