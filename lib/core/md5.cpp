// SPDX-License-Identifier: Apache-2.0
#include "core/md5.hpp"

#include <algorithm>
#include <bit>

namespace ckpt {
namespace {

/// floor(2^32 * |sin(i + 1)|), as the RFC has it.
constexpr std::array<std::uint32_t, 64> sines = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391};
constexpr std::array<std::array<int, 4>, 4> turns = {
    {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}}};

}  // namespace

void Md5::digest_chunk(const std::byte* data) {
  std::array<std::uint32_t, 16> words{};
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = load_le<std::uint32_t>(data + 4 * i);
  auto [a, b, c, d] = state_;
  const auto step = [&, &a = a, &b = b, &c = c, &d = d](std::size_t i, std::uint32_t mix, std::size_t word) {
    const std::uint32_t turned = b + std::rotl(a + mix + sines[i] + words[word], turns[i / 16][i % 4]);
    a = d;
    d = c;
    c = b;
    b = turned;
  };
  for (std::size_t i = 0; i < 16; ++i) step(i, d ^ (b & (c ^ d)), i);
  for (std::size_t i = 16; i < 32; ++i) step(i, c ^ (d & (b ^ c)), (5 * i + 1) % 16);
  for (std::size_t i = 32; i < 48; ++i) step(i, b ^ c ^ d, (3 * i + 5) % 16);
  for (std::size_t i = 48; i < 64; ++i) step(i, c ^ (b | ~d), 7 * i % 16);
  state_[0] += a;
  state_[1] += b;
  state_[2] += c;
  state_[3] += d;
}

void Md5::update(ByteView data) {
  const std::size_t held = size_ % chunk;
  size_ += data.size();
  if (held > 0) {
    const std::size_t taken = std::min(chunk - held, data.size());
    std::copy_n(data.begin(), taken, held_.begin() + static_cast<std::ptrdiff_t>(held));
    data = data.subspan(taken);
    if (held + taken < chunk) return;
    digest_chunk(held_.data());
  }
  for (; data.size() >= chunk; data = data.subspan(chunk)) digest_chunk(data.data());
  std::copy(data.begin(), data.end(), held_.begin());
}

std::string Md5::hex() {
  const std::uint64_t bits = size_ * 8;
  Bytes tail(1, std::byte{0x80});
  while ((size_ + tail.size()) % chunk != chunk - 8) tail.push_back(std::byte{0});
  append_le(tail, bits);
  update(tail);
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const std::uint32_t word : state_) {
    for (int shift = 0; shift < 32; shift += 8) {
      text += digits[(word >> (shift + 4)) & 15U];
      text += digits[(word >> shift) & 15U];
    }
  }
  return text;
}

}  // namespace ckpt
