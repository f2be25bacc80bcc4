// SPDX-License-Identifier: Apache-2.0
// The runs of views of every kind against the addresses of their elements, counted one by one.
#include "ops/view_runs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

using namespace ckpt;

namespace {

/// Where the elements of a view begin, those that lie as a whole in [begin, end).
std::set<std::uint64_t> starts_of(const Tensor& tensor, std::uint64_t begin, std::uint64_t end) {
  std::set<std::uint64_t> starts;
  const std::uint64_t width = bits_of(tensor.dtype) / 8;
  std::vector<std::int64_t> index(tensor.shape.size(), 0);
  for (std::uint64_t n = 0; n < element_count(tensor).value(); ++n) {
    std::uint64_t at = 0;
    for (std::size_t d = 0; d < index.size(); ++d) at += static_cast<std::uint64_t>(index[d] * tensor.strides[d]);
    at = tensor.offset + at * width;
    if (at >= begin && at + width <= end) starts.insert(at);
    for (std::size_t d = index.size(); d-- > 0;) {
      if (++index[d] < tensor.shape[d]) break;
      index[d] = 0;
    }
  }
  return starts;
}

struct Found {
  std::set<std::uint64_t> starts;
  std::size_t runs = 0;
  bool twice = false;
};

Found find_runs(const Tensor& tensor, std::uint64_t begin, std::uint64_t end) {
  Found found;
  const std::uint64_t width = bits_of(tensor.dtype) / 8;
  ops::for_each_run(tensor, begin, end, [&](std::uint64_t offset, std::uint64_t size) {
    ++found.runs;
    CHECK(size > 0);
    CHECK(size % width == 0);
    for (std::uint64_t at = offset; at < offset + size; at += width) {
      found.twice = found.twice || !found.starts.insert(at).second;
    }
  });
  return found;
}

}  // namespace

TEST_SUITE("view runs") {
  TEST_CASE("a view touches its own elements and no others, each once, whatever part of it is looked at") {
    std::mt19937_64 random(3);  // NOLINT: the same views each time
    for (int round = 0; round < 3000; ++round) {
      Tensor tensor{.dtype = round % 2 == 0 ? DType::float32 : DType::float64, .offset = random() % 40};
      // Strides that are multiples of all that's below them, or a gap more; in any order.
      std::int64_t below = 1;
      std::vector<std::pair<std::int64_t, std::int64_t>> dimensions;
      for (std::size_t d = random() % 5; d-- > 0;) {
        const auto count = static_cast<std::int64_t>(random() % 4 + (random() % 8 == 0 ? 0 : 1));
        const std::int64_t stride = random() % 6 == 0 ? 0 : below + static_cast<std::int64_t>(random() % 3);
        dimensions.emplace_back(count, stride);
        if (stride != 0 && count > 0) below += stride * (count - 1);
      }
      std::shuffle(dimensions.begin(), dimensions.end(), random);
      for (const auto& [count, stride] : dimensions) {
        tensor.shape.push_back(count);
        tensor.strides.push_back(stride);
      }
      const std::uint64_t end = view_end(tensor).value();
      CAPTURE(round);
      const Found whole = find_runs(tensor, 0, end);
      REQUIRE(whole.starts == starts_of(tensor, 0, end));
      REQUIRE_FALSE(whole.twice);
      const std::uint64_t from = random() % (end + 8);
      const std::uint64_t to = from + random() % 100;
      REQUIRE(find_runs(tensor, from, to).starts == starts_of(tensor, from, to));
    }
  }

  TEST_CASE("dense and unfolded views are one run, in any order of their dimensions") {
    const Tensor transposed{.dtype = DType::float32, .offset = 4, .shape = {5, 3, 2}, .strides = {1, 10, 5}};
    CHECK(find_runs(transposed, 0, 1000).runs == 1);
    CHECK(find_runs(transposed, 0, 1000).starts.size() == 30);
    const Tensor unfolded{.dtype = DType::float32, .offset = 0, .shape = {100, 100}, .strides = {1, 1}};
    CHECK(find_runs(unfolded, 0, 4000).runs == 1);
    CHECK(find_runs(unfolded, 0, 4000).starts.size() == 199);
  }

  TEST_CASE("a view of more elements than memory has takes no time") {
    constexpr std::int64_t many = std::int64_t{1} << 30;
    const Tensor expanded{.dtype = DType::float32, .offset = 0, .shape = {many, many}, .strides = {0, 0}};
    CHECK(find_runs(expanded, 0, 4).starts.size() == 1);
    const Tensor odd{.dtype = DType::float32, .offset = 0, .shape = {many, many}, .strides = {2, 3}};
    CHECK(find_runs(odd, 4000, 8000).runs == 1);
    const Tensor wide{.dtype = DType::float32, .offset = 0, .shape = {many, 2}, .strides = {1000, 1}};
    CHECK(find_runs(wide, 4000000000, 4000008000).runs == 2);
  }
}
