// SPDX-License-Identifier: Apache-2.0
// Views of every kind against the plain way to gather them, element by element.
#include "ops/tensor_reader.hpp"
#include "export_support.hpp"
#include "ops/strided_gather.hpp"
#include "ops/value_signs.hpp"
#include "slowness.hpp"

#include <doctest/doctest.h>

#include <random>

using namespace ckpt;
using namespace export_test;

namespace {

std::string noise(std::size_t size) {
  std::mt19937_64 random(7);
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

/// One opaque file in a store of its own.
struct OneFile {
  explicit OneFile(std::string bytes) : content(std::move(bytes)) {
    write_file(scratch / "noise", content);
    save(scratch / "store", {scratch / "noise"});
    checkpoint = store::Store::open(scratch / "store").resolve({});
    container = ops::open_shard(*checkpoint, 0);
    stored.emplace(container, container->catalog().files.at(0));
  }

  std::string gather(const Tensor& tensor, std::uint64_t tile) const {
    ops::BlockCursor cursor(*stored, 2);
    const Monitor monitor;
    std::string got;
    ops::gather_strided(
        cursor, tensor, monitor,
        [&](ByteView piece) {
          CHECK(piece.size() <= std::max<std::uint64_t>(tile, bits_of(tensor.dtype) / 8));
          got += as_text(piece);
        },
        tile);
    return got;
  }

  std::string read(const Tensor& tensor) const {
    ops::BlockCursor cursor(*stored, ops::gather_blocks);
    const Monitor monitor;
    std::string got;
    ops::read_tensor(cursor, tensor, 3, monitor, [&](ByteView piece) { got += as_text(piece); });
    return got;
  }

  unit_test::Scratch scratch;
  std::string content;
  std::optional<store::Checkpoint> checkpoint;
  std::shared_ptr<const format::ContainerReader> container;
  std::optional<ops::StoredFile> stored;
};

}  // namespace

TEST_SUITE("tensor reader") {
  TEST_CASE("views of any shape and strides come out in order, whatever a tile holds") {
    // Elements straddle blocks, which end at multiples of 4 MiB.
    const OneFile file(noise((8U << 20U) + 12345));
    std::mt19937 random(1);
    const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
    constexpr DType types[] = {DType::uint8, DType::bfloat16, DType::float32, DType::float64, DType::complex128};
    for (int round = 0; round < 60 / static_cast<int>(unit_test::slowness); ++round) {
      Tensor tensor{.name = "t", .dtype = types[pick(0, 4)]};
      const int dims = pick(1, 4);
      for (int d = 0; d < dims; ++d) {
        tensor.shape.push_back(pick(1, 9));
        tensor.strides.push_back(pick(0, 3) == 0 ? pick(0, 2) : pick(1, 6000));
      }
      tensor.offset = static_cast<std::uint64_t>((4 << 20) - pick(1, 70000));
      REQUIRE(view_end(tensor).value() <= file.content.size());
      CAPTURE(round);
      const std::string want = source_test::contiguous(tensor, file.content);
      for (const std::uint64_t tile : {std::uint64_t{16}, std::uint64_t{100}, std::uint64_t{4096}, ops::gather_tile}) {
        CHECK((file.gather(tensor, tile) == want));
      }
    }
  }

  TEST_CASE("a transposed matrix that spans several blocks is gathered in few passes") {
    const OneFile file(noise(12U << 20U));
    const Tensor tensor{.name = "t", .dtype = DType::float32, .offset = 0, .shape = {1024, 3072}, .strides = {1, 1024}};
    const std::string want = source_test::contiguous(tensor, file.content);
    CHECK((file.gather(tensor, 1U << 20U) == want));
    CHECK((file.read(tensor) == want));
  }

  TEST_CASE("a large contiguous tensor at an odd offset comes out whole") {
    const OneFile file(noise((20U << 20U) + 77));
    const Tensor tensor{.name = "t", .dtype = DType::float64, .offset = 3, .shape = {(20 << 17) + 5}, .strides = {1}};
    CHECK((file.read(tensor) == file.content.substr(3, ((20U << 17U) + 5) * 8)));
  }

  TEST_CASE("elements of less than a byte are gathered bit by bit") {
    const OneFile file(std::string("\x21\x43\x65\x87", 4));
    const Tensor nibbles{.name = "t", .dtype = DType::float4, .offset = 0, .shape = {2, 4}, .strides = {1, 2}};
    CHECK(file.read(nibbles) == std::string("\x31\x75\x42\x86", 4));
    const Tensor sixes{.name = "t", .dtype = DType::float6_e2m3, .offset = 0, .shape = {2, 2}, .strides = {1, 2}};
    // 0x654321 in codes of 6 bits: 33, 12, 20, 25; in the order 0, 2, 1, 3.
    const unsigned packed = 33U | 20U << 6U | 12U << 12U | 25U << 18U;
    std::string want;
    for (const unsigned shift : {0U, 8U, 16U}) want += static_cast<char>((packed >> shift) & 0xffU);
    CHECK(file.read(sixes) == want);
  }

  TEST_CASE("an empty view gives nothing and a scalar one element") {
    const OneFile file(noise(64));
    CHECK(file.read({.name = "t", .dtype = DType::float32, .shape = {0, 4}, .strides = {4, 1}}) == "");
    CHECK(file.read({.name = "t", .dtype = DType::float32, .offset = 4}) == file.content.substr(4, 4));
  }

  TEST_CASE("conjugate and negative bits are resolved by value") {
    const auto resolve = [](DType dtype, bool conjugate, bool negative, const auto& values) {
      const Tensor tensor{.name = "t", .dtype = dtype, .conjugate = conjugate, .negative = negative};
      Bytes scratch;
      const ByteView bytes = ops::resolve_signs(tensor, std::as_bytes(std::span(values)), scratch);
      auto result = values;
      std::copy(bytes.begin(), bytes.end(), std::as_writable_bytes(std::span(result)).begin());
      return result;
    };
    const std::vector<float> numbers{1, 2, -3, 4};
    CHECK(resolve(DType::complex64, true, false, numbers) == std::vector<float>{1, -2, -3, -4});
    CHECK(resolve(DType::complex64, false, true, numbers) == std::vector<float>{-1, -2, 3, -4});
    CHECK(resolve(DType::complex64, true, true, numbers) == std::vector<float>{-1, 2, 3, 4});
    CHECK(resolve(DType::float32, false, true, numbers) == std::vector<float>{-1, -2, 3, -4});
    CHECK(resolve(DType::float32, true, false, numbers) == numbers);
    CHECK(resolve(DType::int16, false, true, std::vector<std::int16_t>{1, -2, -32768}) ==
          std::vector<std::int16_t>{-1, 2, -32768});
  }

  TEST_CASE("a block that is damaged is an error and gives no bytes") {
    OneFile file(noise(5U << 20U));
    const auto& block = file.container->index().blocks.at(1);
    const std::string path = file.checkpoint->shard_path(file.checkpoint->manifest.shards.at(0));
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    std::fstream stream(path, std::ios::binary | std::ios::in | std::ios::out);
    stream.seekp(static_cast<std::streamoff>(block.place + 100));
    stream.put(static_cast<char>(~static_cast<unsigned char>(file.content[(4U << 20U) + 100])));
    stream.close();
    const Tensor tensor{.name = "t", .dtype = DType::uint8, .offset = (4 << 20) + 5, .shape = {200}, .strides = {1}};
    CHECK(failure_of([&] { (void)file.read(tensor); }).code == Errc::damaged);
    const Tensor sound{.name = "t", .dtype = DType::uint8, .offset = 5, .shape = {200}, .strides = {1}};
    CHECK(file.read(sound) == file.content.substr(5, 200));
  }
}
