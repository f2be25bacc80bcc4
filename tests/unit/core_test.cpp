// SPDX-License-Identifier: Apache-2.0
#include "core/bit_search.hpp"
#include "core/digest.hpp"
#include "core/md5.hpp"
#include "core/tensor.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <array>
#include <random>

using namespace ckpt;

TEST_SUITE("core") {
  TEST_CASE("a digest is printed as xxh128sum prints it") {
    CHECK(to_hex(xxh3_128(std::string_view(""))) == "99aa06d3014798d86001c324468d497f");
    CHECK(digest_from_hex(to_hex(xxh3_128(std::string_view("abc")))) == xxh3_128(std::string_view("abc")));
  }

  TEST_CASE("a digest in upper case, too short or with another letter is refused") {
    CHECK_FALSE(digest_from_hex("99AA06D3014798D86001C324468D497F"));
    CHECK_FALSE(digest_from_hex("99aa"));
    CHECK_FALSE(digest_from_hex("g9aa06d3014798d86001c324468d497f"));
  }

  TEST_CASE("pieces hash like the whole") {
    Hasher hasher;
    hasher.update(std::string_view("ab"));
    hasher.update(std::string_view("c"));
    CHECK(hasher.digest() == xxh3_128(std::string_view("abc")));
  }

  TEST_CASE("MD5 is that of the RFC, in whatever pieces the bytes come") {
    const auto md5 = [](std::string_view text, std::size_t piece) {
      Md5 sum;
      for (; !text.empty(); text.remove_prefix(std::min(piece, text.size())))
        sum.update(as_bytes(text.substr(0, piece)));
      return sum.hex();
    };
    const std::string eighty =
        "1234567890123456789012345678901234567890"
        "1234567890123456789012345678901234567890";
    CHECK(md5("", 1) == "d41d8cd98f00b204e9800998ecf8427e");
    CHECK(md5("message digest", 3) == "f96b697d7cb7938d525a2f31aaf161d0");
    for (const std::size_t piece : std::array<std::size_t, 6>{1, 7, 63, 64, 65, 80})
      CHECK(md5(eighty, piece) == "57edf4a22be3c955ac49da2e2107b67a");
    const std::string padding(56, 'a');
    CHECK(md5(padding, 56) == "3b0c8ac703f828b04c6c197006d17218");
  }

  TEST_CASE("a flipped bit is found from the sum alone, in inputs of every length class, and no other bit is") {
    std::mt19937_64 random(1);  // NOLINT: the same bytes each time
    constexpr std::array<std::size_t, 22> sizes = {1,    16,   17,   128,  129,  240,  241,  256,  257,  300,   1000,
                                                   1023, 1024, 1025, 1087, 1088, 1089, 2048, 2049, 5000, 65536, 70001};
    for (const std::size_t size : sizes) {
      CAPTURE(size);
      Bytes data(size);
      for (std::byte& b : data) b = static_cast<std::byte>(random());
      const std::uint64_t sum = xxh3_64(data);
      for (int round = 0; round < 40; ++round) {
        // Stripes overlap at the end.
        const std::size_t at = round < 8
                                   ? size - 1 - std::min<std::size_t>(size - 1, static_cast<std::size_t>(round) * 17)
                                   : random() % size;
        const auto bit = static_cast<unsigned>(random() % 8);
        data[at] ^= static_cast<std::byte>(1U << bit);
        const BitSearch search(data, sum);
        CHECK(search.bit_at(at) == bit);
        if (size > 1) CHECK_FALSE(search.bit_at((at + 1 + random() % (size - 1)) % size));
        data[at] ^= static_cast<std::byte>(1U << bit);
      }
    }
  }

  TEST_CASE("every element type has a name that leads back to it") {
    for (std::uint8_t i = 0; i < dtype_count; ++i) {
      CHECK(dtype_from_name(name_of(static_cast<DType>(i))) == static_cast<DType>(i));
    }
  }

  TEST_CASE("the end of a strided view is its last element, not its size") {
    Tensor t{.dtype = DType::float32, .offset = 100, .shape = {3, 2}, .strides = {10, 4}};
    CHECK(view_end(t) == 100 + (2 * 10 + 1 * 4 + 1) * 4);
    t.shape = {3, 0};
    CHECK(view_end(t) == 100);
  }

  TEST_CASE("a shape that overflows has no size") {
    const Tensor t{.dtype = DType::float32, .shape = {INT64_MAX, INT64_MAX}, .strides = {INT64_MAX, 1}};
    CHECK_FALSE(element_count(t));
    CHECK_FALSE(view_end(t));
  }
}
