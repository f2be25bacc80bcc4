// SPDX-License-Identifier: Apache-2.0
// XXH3 digests. They guard against accidents, not against an attacker.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ckpt {

/// XXH3-128 in its canonical (big-endian) byte order, the order in which xxh128sum prints it.
struct Digest {
  std::array<std::byte, 16> bytes{};
  friend auto operator<=>(const Digest&, const Digest&) = default;
};

/// For hash tables: a digest is one already.
struct DigestHash {
  [[nodiscard]] std::size_t operator()(const Digest& digest) const noexcept {
    std::size_t value = 0;
    std::memcpy(&value, digest.bytes.data(), sizeof value);
    return value;
  }
};

[[nodiscard]] Digest xxh3_128(std::span<const std::byte> data);
[[nodiscard]] Digest xxh3_128(std::string_view data);
[[nodiscard]] std::uint64_t xxh3_64(std::span<const std::byte> data);

[[nodiscard]] std::string to_hex(const Digest& digest);
/// Exactly 32 lower-case hex digits, or nothing.
[[nodiscard]] std::optional<Digest> digest_from_hex(std::string_view hex);

/// XXH3-128 of bytes that come in pieces. Not thread-safe.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;
  void update(std::span<const std::byte> data);
  void update(std::string_view data);
  [[nodiscard]] Digest digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ckpt
