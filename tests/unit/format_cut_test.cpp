// SPDX-License-Identifier: Apache-2.0
// How a file is cut into blocks: the rule of ckpt-format(5), by example and on random files.
#include "format/catalog.hpp"
#include "format/constants.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <numeric>
#include <random>

using namespace ckpt;
using namespace ckpt::format;

namespace {

using Sizes = std::vector<std::uint64_t>;

constexpr std::uint64_t mib = 1U << 20U;

Extent extent(std::uint64_t offset, std::uint64_t size) {
  return {.offset = offset, .size = size, .dtype = DType::int8};
}

/// Extents and gaps in order, empty ones left out: (offset, size).
std::vector<std::pair<std::uint64_t, std::uint64_t>> pieces_of(std::uint64_t size, const std::vector<Extent>& extents) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> pieces;
  std::uint64_t at = 0;
  const auto add = [&](std::uint64_t end) {
    if (end > at) pieces.emplace_back(at, end - at);
    at = end;
  };
  for (const Extent& e : extents) {
    add(e.offset);
    add(e.offset + e.size);
  }
  add(size);
  return pieces;
}

}  // namespace

TEST_SUITE("format cut") {
  TEST_CASE("an empty file has no blocks") { CHECK(cut_into_blocks(0, {}).empty()); }

  TEST_CASE("a file without extents is cut at multiples of 4 MiB") {
    CHECK(cut_into_blocks(1, {}) == Sizes{1});
    CHECK(cut_into_blocks(4 * mib, {}) == Sizes{4 * mib});
    CHECK(cut_into_blocks(4 * mib + 1, {}) == Sizes{4 * mib, 1});
    CHECK(cut_into_blocks(9 * mib, {}) == Sizes{4 * mib, 4 * mib, mib});
  }

  TEST_CASE("a large extent is cut from its own start") {
    CHECK(cut_into_blocks(5 * mib + 164, {extent(100, 5 * mib)}) == Sizes{100, 4 * mib, mib, 64});
  }

  TEST_CASE("small neighbours share a block, up to 4 MiB") {
    CHECK(cut_into_blocks(300, {extent(10, 20), extent(30, 100), extent(200, 10)}) == Sizes{300});
    std::vector<Extent> many;
    for (std::uint64_t i = 0; i < 100; ++i) many.push_back(extent(i * 65535, 65535));
    CHECK(cut_into_blocks(100 * 65535, many) == Sizes{64 * 65535, 36 * 65535});
  }

  TEST_CASE("a piece of 64 KiB shares with no one") {
    CHECK(cut_into_blocks(65736, {extent(100, 65536)}) == Sizes{100, 65536, 100});
    CHECK(cut_into_blocks(65735, {extent(100, 65535)}) == Sizes{65735});
  }

  TEST_CASE("the rest of a large piece shares with no one") {
    CHECK(cut_into_blocks(4 * mib + 20, {extent(0, 4 * mib + 10)}) == Sizes{4 * mib, 10, 10});
  }

  TEST_CASE("a size beyond 32 bits is cut without loss") {
    const std::uint64_t size = (1ULL << 33U) + 12345;
    const Sizes blocks = cut_into_blocks(size, {extent(4096, 1ULL << 33U)});
    CHECK(std::accumulate(blocks.begin(), blocks.end(), std::uint64_t{0}) == size);
    CHECK(blocks.size() == 1 + (1ULL << 33U) / block_size + 1);
  }

  TEST_CASE("random files: blocks add up, stay in bounds, and start where large pieces start") {
    std::mt19937_64 random(42);
    const auto any_size = [&]() -> std::uint64_t {
      switch (random() % 4) {
        case 0: return random() % 100;
        case 1: return 65530 + random() % 12;
        case 2: return random() % 200000;
        default: return random() % (10 * mib);
      }
    };
    for (int round = 0; round < 300; ++round) {
      std::vector<Extent> extents;
      std::uint64_t at = 0;
      for (std::uint64_t i = random() % 40; i > 0; --i) {
        if (random() % 2 == 0) at += any_size();
        const std::uint64_t size = 1 + any_size();
        extents.push_back(extent(at, size));
        at += size;
      }
      const std::uint64_t file_size = at + (random() % 2 == 0 ? any_size() : 0);
      const Sizes blocks = cut_into_blocks(file_size, extents);
      REQUIRE(std::accumulate(blocks.begin(), blocks.end(), std::uint64_t{0}) == file_size);

      std::vector<std::uint64_t> starts;
      std::uint64_t offset = 0;
      for (const std::uint64_t size : blocks) {
        REQUIRE(size > 0);
        REQUIRE(size <= block_size);
        starts.push_back(offset);
        offset += size;
      }
      starts.push_back(file_size);
      const auto is_start = [&](std::uint64_t o) { return std::binary_search(starts.begin(), starts.end(), o); };
      const auto pieces = pieces_of(file_size, extents);
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        const auto [begin, size] = pieces[i];
        if (size < share_limit) {
          // Two small neighbours are parted only where their block would have become too large.
          if (i == 0 || pieces[i - 1].second >= share_limit || !is_start(begin)) continue;
          const auto here = std::lower_bound(starts.begin(), starts.end(), begin);
          REQUIRE(begin - *std::prev(here) + size > block_size);
          continue;
        }
        for (std::uint64_t o = begin; o < begin + size; o += block_size) REQUIRE(is_start(o));
        REQUIRE(is_start(begin + size));
        REQUIRE(static_cast<std::uint64_t>(std::lower_bound(starts.begin(), starts.end(), begin + size) -
                                           std::lower_bound(starts.begin(), starts.end(), begin)) ==
                (size + block_size - 1) / block_size);
      }
    }
  }
}
