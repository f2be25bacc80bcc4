// SPDX-License-Identifier: Apache-2.0
// XXH3 through the xxHash library; this file alone includes it.
#include "core/digest.hpp"

#if defined(__x86_64__)
// The library picks AVX2 or AVX-512 at run time behind these names: up to twice the speed of the baseline.
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif
#include <cstring>
#include <new>

namespace ckpt {
namespace {

Digest canonical(XXH128_hash_t hash) {
  XXH128_canonical_t text;
  XXH128_canonicalFromHash(&text, hash);
  Digest digest;
  static_assert(sizeof text.digest == sizeof digest.bytes);
  std::memcpy(digest.bytes.data(), text.digest, sizeof text.digest);
  return digest;
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

Digest xxh3_128(std::span<const std::byte> data) { return canonical(XXH3_128bits(data.data(), data.size())); }

Digest xxh3_128(std::string_view data) { return xxh3_128(std::as_bytes(std::span(data))); }

std::uint64_t xxh3_64(std::span<const std::byte> data) { return XXH3_64bits(data.data(), data.size()); }

std::string to_hex(const Digest& digest) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * digest.bytes.size());
  for (const std::byte b : digest.bytes) {
    hex.push_back(digits[std::to_integer<unsigned>(b) >> 4U]);
    hex.push_back(digits[std::to_integer<unsigned>(b) & 15U]);
  }
  return hex;
}

std::optional<Digest> digest_from_hex(std::string_view hex) {
  Digest digest;
  if (hex.size() != 2 * digest.bytes.size()) return std::nullopt;
  for (std::size_t i = 0; i < digest.bytes.size(); ++i) {
    const int high = hex_value(hex[2 * i]);
    const int low = hex_value(hex[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    digest.bytes[i] = static_cast<std::byte>(high * 16 + low);
  }
  return digest;
}

struct Hasher::State {
  State() : xxh(XXH3_createState()) {
    if (xxh == nullptr) throw std::bad_alloc();
    XXH3_128bits_reset(xxh);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { XXH3_freeState(xxh); }
  XXH3_state_t* xxh;
};

Hasher::Hasher() : state_(std::make_unique<State>()) {}
Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;

void Hasher::update(std::span<const std::byte> data) { XXH3_128bits_update(state_->xxh, data.data(), data.size()); }
void Hasher::update(std::string_view data) { update(std::as_bytes(std::span(data))); }
Digest Hasher::digest() const { return canonical(XXH3_128bits_digest(state_->xxh)); }

}  // namespace ckpt
