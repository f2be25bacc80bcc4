// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "core/crc32.hpp"

#include <random>

using namespace ckpt;

TEST_CASE("crc32: folding gives what the tables give, at every size and place") {
  std::mt19937_64 random(1);
  Bytes data(3000);
  for (std::byte& byte : data) byte = static_cast<std::byte>(random());
  for (std::size_t size = 0; size < 700; ++size) {
    const ByteView part = ByteView(data).subspan(size % 17, size);
    const auto before = static_cast<std::uint32_t>(random());
    REQUIRE(crc32(before, part) == crc32_by_tables(before, part));
  }
  CHECK(crc32(7, data) == crc32_by_tables(7, data));
}

TEST_CASE("crc32: that of two parts is that of the whole") {
  std::mt19937_64 random(2);
  Bytes data(5000);
  for (std::byte& byte : data) byte = static_cast<std::byte>(random());
  for (const std::size_t cut : {0U, 1U, 8U, 63U, 64U, 1000U, 4999U, 5000U}) {
    const ByteView a = ByteView(data).first(cut);
    const ByteView b = ByteView(data).subspan(cut);
    CHECK(crc32_of_both(crc32(0, a), crc32(0, b), b.size()) == crc32(0, data));
  }
}
