// SPDX-License-Identifier: Apache-2.0
#include "codec/byte_histogram.hpp"

#include <algorithm>
#include <cmath>

namespace ckpt::codec {
namespace {

/// n log2 n; a sample's histogram asks for little but small ones.
double n_log2_n(std::uint32_t n) {
  static const auto table = [] {
    std::array<double, 1024> values{};
    for (std::size_t i = 1; i < values.size(); ++i) {
      values[i] = static_cast<double>(i) * std::log2(static_cast<double>(i));
    }
    return values;
  }();
  return n < table.size() ? table[n] : n * std::log2(n);
}

template <class Visit>
void for_each_sampled_run(ByteView bytes, std::size_t limit, Visit&& visit) {
  constexpr std::size_t runs = 8;
  if (bytes.size() <= limit) return visit(bytes);
  const std::size_t run = limit / runs;
  const std::size_t step = (bytes.size() - run) / (runs - 1);
  for (std::size_t r = 0; r < runs; ++r) visit(bytes.subspan(r * step, run));
}

}  // namespace

std::uint64_t ByteHistogram::total() const {
  std::uint64_t sum = 0;
  for (const std::uint32_t count : counts) sum += count;
  return sum;
}

double ByteHistogram::entropy() const {
  const auto sum = static_cast<double>(total());
  if (sum == 0) return 0;
  double saved = 0;
  for (const std::uint32_t count : counts) saved += n_log2_n(count);
  return std::max(0.0, std::log2(sum) - saved / sum);
}

double ByteHistogram::stored_bits() const {
  const auto sum = static_cast<double>(total());
  const auto symbols = static_cast<double>(std::count_if(counts.begin(), counts.end(), [](auto c) { return c != 0; }));
  if (symbols <= 1) return 0;
  const double bits = std::min(8.0, entropy() + (symbols - 1) / (2 * sum * std::log(2.0)));
  if (bits > 7.92) return 8 * sum;
  // What matches make of scattered values is about a fifth above their entropy; a Huffman code wastes a fiftieth.
  return sum * (bits < 1 ? std::min(1.0, bits * 1.2 + 0.02) : bits * 1.02);
}

void ByteHistogram::add(ByteView bytes) {
  // Four tables: equal neighbours must not wait for each other's count.
  std::array<std::array<std::uint32_t, 256>, 4> tables{};
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    const auto eight = load_le<std::uint64_t>(bytes.data() + i);
    ++tables[0][eight & 0xffU];
    ++tables[1][eight >> 8U & 0xffU];
    ++tables[2][eight >> 16U & 0xffU];
    ++tables[3][eight >> 24U & 0xffU];
    ++tables[0][eight >> 32U & 0xffU];
    ++tables[1][eight >> 40U & 0xffU];
    ++tables[2][eight >> 48U & 0xffU];
    ++tables[3][eight >> 56U];
  }
  for (; i < bytes.size(); ++i) ++tables[0][std::to_integer<std::size_t>(bytes[i])];
  for (std::size_t v = 0; v < 256; ++v) counts[v] += tables[0][v] + tables[1][v] + tables[2][v] + tables[3][v];
}

ByteHistogram histogram_of(ByteView bytes) {
  ByteHistogram histogram;
  histogram.add(bytes);
  return histogram;
}

ByteHistogram sample_histogram(ByteView bytes, std::size_t limit) {
  ByteHistogram histogram;
  for_each_sampled_run(bytes, limit, [&](ByteView run) { histogram.add(run); });
  return histogram;
}

double sample_clustering(ByteView bytes, std::size_t limit) {
  std::uint64_t pairs = 0;
  std::uint64_t equal = 0;
  for_each_sampled_run(bytes, limit, [&](ByteView run) {
    for (std::size_t i = 1; i < run.size(); ++i) equal += run[i] == run[i - 1] ? 1U : 0U;
    pairs += run.empty() ? 0 : run.size() - 1;
  });
  const ByteHistogram histogram = sample_histogram(bytes, limit);
  const auto sum = static_cast<double>(histogram.total());
  double by_chance = 0;
  for (const std::uint32_t count : histogram.counts) by_chance += count / sum * (count / sum);
  if (pairs == 0 || by_chance >= 1) return 0;
  return (static_cast<double>(equal) / static_cast<double>(pairs) - by_chance) / (1 - by_chance);
}

}  // namespace ckpt::codec
