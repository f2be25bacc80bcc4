// SPDX-License-Identifier: Apache-2.0
// How fast one core encodes and decodes blocks in memory, for numbers as training leaves them. Prints stored / raw, and
// GB/s of raw bytes by processor time: medians of all rounds. usage: codec_bench [ROUNDS [CASE]]
#include "codec/block_encoder.hpp"
#include "codec/zstd_frame.hpp"
#include "core/digest.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace ckpt;
using namespace ckpt::codec;

constexpr std::size_t block_size = std::size_t{4} << 20U;
constexpr std::size_t block_count = 4;

struct Block {
  Bytes raw, base;
};

struct Case {
  std::string name;
  Element element;
  std::vector<Block> blocks;
};

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double median(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::vector<std::uint16_t> as_bfloat16(const std::vector<float>& values) {
  std::vector<std::uint16_t> rounded;
  for (const float value : values) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    rounded.push_back(static_cast<std::uint16_t>((u + 0x7fffU + ((u >> 16U) & 1U)) >> 16U));
  }
  return rounded;
}

class Training {
 public:
  std::vector<float> weights(std::size_t n) {
    std::normal_distribution<float> normal(0, 0.03F);
    std::vector<float> values(n);
    for (float& value : values) value = normal(rng_);
    return values;
  }
  /// Steps of one learning rate, as Adam takes them.
  std::vector<float> after_steps(std::vector<float> values, float rate) {
    std::normal_distribution<float> step(0, rate / 2);
    for (float& value : values) value += step(rng_);
    return values;
  }
  std::vector<float> second_moments(std::size_t n) {
    std::normal_distribution<float> log(-20, 2);
    std::vector<float> values(n);
    for (float& value : values) value = std::exp(log(rng_));
    return values;
  }
  std::vector<float> decayed(std::vector<float> values) {
    std::normal_distribution<float> gradient(0, 1);
    for (float& value : values) {
      const float g = gradient(rng_);
      value = 0.999F * value + 0.001F * value * g * g;
    }
    return values;
  }

 private:
  std::mt19937_64 rng_{1};
};

std::vector<Case> make_cases() {
  Training training;
  constexpr Element float32{.kind = NumberKind::floating, .width = 4};
  constexpr Element bfloat16{.kind = NumberKind::floating, .width = 2};
  std::vector<Case> cases = {{.name = "fp32 alone", .element = float32, .blocks = {}},
                             {.name = "bf16 alone", .element = bfloat16, .blocks = {}},
                             {.name = "fp32 weights", .element = float32, .blocks = {}},
                             {.name = "fp32 moments", .element = float32, .blocks = {}},
                             {.name = "bf16 far", .element = bfloat16, .blocks = {}},
                             {.name = "bf16 near", .element = bfloat16, .blocks = {}},
                             {.name = "bf16 sparse", .element = bfloat16, .blocks = {}}};
  for (std::size_t b = 0; b < block_count; ++b) {
    const std::vector<float> w = training.weights(block_size / 4);
    cases[0].blocks.push_back({.raw = bytes_of(w), .base = {}});
    const std::vector<float> w2 = training.weights(block_size / 2);
    cases[1].blocks.push_back({.raw = bytes_of(as_bfloat16(w2)), .base = {}});
    cases[2].blocks.push_back({.raw = bytes_of(training.after_steps(w, 2e-4F)), .base = bytes_of(w)});
    const std::vector<float> v = training.second_moments(block_size / 4);
    cases[3].blocks.push_back({.raw = bytes_of(training.decayed(v)), .base = bytes_of(v)});
    std::size_t c = 4;
    for (const float rate : {1e-3F, 1e-4F, 3e-6F}) {
      cases[c++].blocks.push_back(
          {.raw = bytes_of(as_bfloat16(training.after_steps(w2, rate))), .base = bytes_of(as_bfloat16(w2))});
    }
  }
  return cases;
}

bool decode(TypedDecoder& decoder, const Block& block, BlockForm form, ByteView stored, std::span<std::byte> into) {
  if (form.codec == Codec::zstd) return zstd_decompress(stored, into);
  return decoder.decode(stored, form.has_base ? ByteView(block.base) : ByteView(), into);
}

void measure(const Case& one, int rounds) {
  BlockEncoder checked(Effort::fast, true);
  BlockEncoder trusting(Effort::fast, false);
  TypedDecoder decoder;
  std::vector<double> checked_seconds, trusting_seconds, decode_seconds;
  Bytes stored, again, raw(block_size);
  std::size_t stored_size = 0;
  Bytes digests;
  for (int round = 0; round < rounds; ++round) {
    for (const Block& block : one.blocks) {
      const BlockInput input{.raw = block.raw, .element = one.element, .base = block.base};
      const double start = processor_seconds();
      stored.clear();
      const BlockForm form = checked.encode(input, stored);
      const double encoded = processor_seconds();
      again.clear();
      (void)trusting.encode(input, again);
      const double encoded_again = processor_seconds();
      if (!decode(decoder, block, form, stored, raw) || raw != block.raw) std::abort();
      const double decode_start = processor_seconds();
      (void)decode(decoder, block, form, stored, raw);
      decode_seconds.push_back(processor_seconds() - decode_start);
      checked_seconds.push_back(encoded - start);
      trusting_seconds.push_back(encoded_again - encoded);
      if (round == 0) {
        stored_size += stored.size();
        const Digest digest = xxh3_128(ByteView(stored));
        const auto at = digests.size();
        digests.resize(at + sizeof digest);
        std::memcpy(digests.data() + at, &digest, sizeof digest);
      }
    }
  }
  const auto rate = [](const std::vector<double>& seconds) { return block_size / median(seconds) / 1e9; };
  std::printf("%-14s %.5f  encode %.2f  unchecked %.2f  decode %.2f  %s\n", one.name.c_str(),
              static_cast<double>(stored_size) / (block_size * block_count), rate(checked_seconds),
              rate(trusting_seconds), rate(decode_seconds), to_hex(xxh3_128(ByteView(digests))).substr(0, 8).c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 5;
  for (const Case& one : make_cases()) {
    if (argc < 3 || one.name == argv[2]) measure(one, rounds);
  }
}
