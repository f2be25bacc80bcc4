// SPDX-License-Identifier: Apache-2.0
// Little-endian numbers in byte sequences: unchecked loads and stores, and a reader that never leaves its bounds.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt {

using Bytes = std::vector<std::byte>;
using ByteView = std::span<const std::byte>;

template <class T>
concept FixedWidth = std::integral<T> && !std::same_as<T, bool>;

/// `from` holds at least sizeof(T) bytes.
template <FixedWidth T>
[[nodiscard]] T load_le(const std::byte* from) {
  static_assert(std::endian::native == std::endian::little, "big-endian hosts need byte swaps here");
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <FixedWidth T>
void store_le(std::byte* to, T value) {
  static_assert(std::endian::native == std::endian::little, "big-endian hosts need byte swaps here");
  std::memcpy(to, &value, sizeof value);
}

template <FixedWidth T>
void append_le(Bytes& to, T value) {
  const std::size_t at = to.size();
  to.resize(at + sizeof value);
  store_le(to.data() + at, value);
}

inline void append(Bytes& to, ByteView data) { to.insert(to.end(), data.begin(), data.end()); }

[[nodiscard]] inline ByteView as_bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

[[nodiscard]] inline std::string_view as_text(ByteView data) {
  return {reinterpret_cast<const char*>(data.data()), data.size()};
}

/// Reads forward; every call says whether the bytes were there. Not thread-safe.
class ByteReader {
 public:
  explicit ByteReader(ByteView data) : data_(data) {}

  [[nodiscard]] std::size_t position() const { return at_; }
  [[nodiscard]] std::size_t remaining() const { return data_.size() - at_; }

  template <FixedWidth T>
  [[nodiscard]] std::optional<T> number() {
    if (remaining() < sizeof(T)) return std::nullopt;
    const T value = load_le<T>(data_.data() + at_);
    at_ += sizeof(T);
    return value;
  }

  [[nodiscard]] std::optional<ByteView> take(std::uint64_t count) {
    if (remaining() < count) return std::nullopt;
    const ByteView view = data_.subspan(at_, count);
    at_ += count;
    return view;
  }

 private:
  ByteView data_;
  std::size_t at_ = 0;
};

/// a + b, or nothing if that's beyond 64 bits.
[[nodiscard]] inline std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

[[nodiscard]] inline std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

/// True if [offset, offset + size) lies inside [0, whole).
[[nodiscard]] inline bool lies_within(std::uint64_t offset, std::uint64_t size, std::uint64_t whole) {
  return offset <= whole && size <= whole - offset;
}

/// `alignment` is a power of two.
[[nodiscard]] constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

}  // namespace ckpt
