// SPDX-License-Identifier: Apache-2.0
// XXH3-64 of more than 240 bytes keeps eight accumulators. A block of 1024 bytes adds to them and scrambles each on its
// own, so a bit of the data changes the two of one pair, by a known amount: only these two are carried on through the
// blocks that follow, whose own additions are known. In the end each pair is mixed into the sum by itself.
// The algorithm is frozen: https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md
#include "core/bit_search.hpp"

#include "core/digest.hpp"

namespace ckpt {
namespace {

constexpr std::size_t stripe = 64;
constexpr std::size_t block_size = 1024;
/// Shorter inputs are hashed in other ways.
constexpr std::size_t longest_short_input = 240;

constexpr std::uint64_t prime32_1 = 0x9E3779B1U;
constexpr std::uint64_t prime32_2 = 0x85EBCA77U;
constexpr std::uint64_t prime32_3 = 0xC2B2AE3DU;
constexpr std::uint64_t prime64_1 = 0x9E3779B185EBCA87U;
constexpr std::uint64_t prime64_2 = 0xC2B2AE3D27D4EB4FU;
constexpr std::uint64_t prime64_3 = 0x165667B19E3779F9U;
constexpr std::uint64_t prime64_4 = 0x85EBCA77C2B2AE63U;
constexpr std::uint64_t prime64_5 = 0x27D4EB2F165667C5U;
constexpr std::uint64_t avalanche_prime = 0x165667919E3779F9U;

// Where the secret is read for each purpose.
constexpr std::size_t scramble_secret = 128;
constexpr std::size_t last_stripe_secret = 121;
constexpr std::size_t merge_secret = 11;

constexpr std::array<std::uint8_t, 192> secret = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4,
    0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e,
    0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43,
    0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb,
    0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19,
    0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8, 0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7,
    0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78,
    0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16,
    0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f,
    0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

std::uint64_t load(const std::byte* from) { return load_le<std::uint64_t>(from); }
std::uint64_t secret_at(std::size_t at) { return load(reinterpret_cast<const std::byte*>(secret.data()) + at); }

std::uint64_t product_of_halves(std::uint64_t key) { return (key & 0xFFFFFFFFU) * (key >> 32U); }

std::uint64_t scrambled(std::uint64_t value, std::size_t lane) {
  value ^= value >> 47U;
  value ^= secret_at(scramble_secret + 8 * lane);
  return value * prime32_1;
}

/// What the first accumulator of a pair and the second are worth in the sum.
std::uint64_t mixed(std::size_t pair, std::uint64_t first, std::uint64_t second) {
  __extension__ using Wide = unsigned __int128;
  const Wide product =
      Wide{first ^ secret_at(merge_secret + 16 * pair)} * (second ^ secret_at(merge_secret + 16 * pair + 8));
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64U);
}

std::uint64_t avalanche(std::uint64_t value) {
  value ^= value >> 37U;
  value *= avalanche_prime;
  return value ^ value >> 32U;
}

/// What a stripe adds to the accumulators.
void add_stripe(std::array<std::uint64_t, 8>& lanes, const std::byte* data, std::size_t secret_offset) {
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    const std::uint64_t value = load(data + 8 * lane);
    lanes[lane ^ 1U] += value;
    lanes[lane] += product_of_halves(value ^ secret_at(secret_offset + 8 * lane));
  }
}

}  // namespace

BitSearch::BitSearch(ByteView data, std::uint64_t sum) : data_(data), sum_(sum) {
  if (data.size() <= longest_short_input) return;
  const std::size_t blocks = (data.size() - 1) / block_size + 1;
  Lanes now = {prime32_3, prime64_1, prime64_2, prime64_3, prime64_4, prime32_2, prime64_5, prime32_1};
  for (std::size_t b = 0; b < blocks; ++b) {
    Lanes added{};
    const bool is_last = b + 1 == blocks;
    const std::size_t stripes = is_last ? (data.size() - 1 - b * block_size) / stripe : block_size / stripe;
    for (std::size_t s = 0; s < stripes; ++s) add_stripe(added, data.data() + b * block_size + s * stripe, 8 * s);
    if (is_last) add_stripe(added, data.data() + data.size() - stripe, last_stripe_secret);
    for (std::size_t lane = 0; lane < lanes; ++lane) now[lane] += added[lane];
    added_.push_back(added);
    reached_.push_back(now);
    if (is_last) break;
    for (std::size_t lane = 0; lane < lanes; ++lane) now[lane] = scrambled(now[lane], lane);
  }
  for (std::size_t pair = 0; pair < lanes / 2; ++pair) mixed_[2 * pair] = mixed(pair, now[2 * pair], now[2 * pair + 1]);
}

std::uint64_t BitSearch::sum_with(std::size_t at_block, std::size_t pair, std::uint64_t first,
                                  std::uint64_t second) const {
  const std::size_t lane = 2 * pair;
  for (std::size_t b = at_block + 1; b < added_.size(); ++b) {
    first = scrambled(first, lane) + added_[b][lane];
    second = scrambled(second, lane + 1) + added_[b][lane + 1];
  }
  std::uint64_t total = data_.size() * prime64_1 + mixed(pair, first, second);
  for (std::size_t other = 0; other < lanes; other += 2) {
    if (other != lane) total += mixed_[other];
  }
  return avalanche(total);
}

std::optional<unsigned> BitSearch::bit_by_hashing(std::size_t at) const {
  Bytes copy(data_.begin(), data_.end());
  for (unsigned bit = 0; bit < 8; ++bit) {
    const auto mask = static_cast<std::byte>(1U << bit);
    copy[at] ^= mask;
    if (xxh3_64(copy) == sum_) return bit;
    copy[at] ^= mask;
  }
  return std::nullopt;
}

std::optional<unsigned> BitSearch::bit_at(std::size_t at) const {
  // The last 64 bytes are a stripe of their own, which overlaps the one before it.
  if (data_.size() <= longest_short_input || at >= data_.size() - stripe) return bit_by_hashing(at);
  const std::size_t at_block = at / block_size;
  const std::size_t lane = at % stripe / 8;
  const std::uint64_t key = secret_at(8 * (at % block_size / stripe) + 8 * lane);
  const std::uint64_t before = load(data_.data() + at / 8 * 8);
  for (unsigned bit = 0; bit < 8; ++bit) {
    const std::uint64_t after = before ^ std::uint64_t{1} << (at % 8 * 8 + bit);
    Lanes now = reached_[at_block];
    now[lane ^ 1U] += after - before;
    now[lane] += product_of_halves(after ^ key) - product_of_halves(before ^ key);
    const std::size_t pair = lane / 2;
    if (sum_with(at_block, pair, now[2 * pair], now[2 * pair + 1]) == sum_) return bit;
  }
  return std::nullopt;
}

}  // namespace ckpt
