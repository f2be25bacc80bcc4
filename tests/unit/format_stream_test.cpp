// SPDX-License-Identifier: Apache-2.0
// A container that passes by once: whatever its size and the pieces it comes in, every changed byte is found.
#include "format/constants.hpp"
#include "format/container_stream.hpp"
#include "format_support.hpp"
#include "scratch.hpp"
#include "slowness.hpp"

#include <doctest/doctest.h>
#include <algorithm>

using namespace ckpt;
using namespace ckpt::format;
using unit_test::Scratch;

namespace {

void pass(ByteView bytes, std::uint64_t size, const Digest& digest, std::size_t piece) {
  ContainerStream stream(size, digest, "c");
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(piece, bytes.size())))
    stream.update(bytes.first(std::min(piece, bytes.size())));
  stream.finish();
}

}  // namespace

TEST_SUITE("format stream") {
  TEST_CASE("a container passes in whatever pieces it comes") {
    const Scratch scratch;
    format_test::Random random(3);
    // Around a granule, where the sums' place has to be told from the size.
    for (const std::size_t size : {0UL, 1UL, granule - 500, granule - 8, granule, 3 * granule, 5'000'000UL}) {
      for (std::size_t more = 0; more < 40; more += 8) {
        CAPTURE(size + more);
        const auto sample =
            format_test::sample_of({{.path = "f", .bytes = format_test::random_bytes(size + more, random)}});
        const std::string path = scratch / (std::to_string(size) + "-" + std::to_string(more));
        const auto written = format_test::write_container(path, sample);
        const Bytes file = format_test::read_file(path);
        for (const std::size_t piece : {std::size_t{4099}, std::size_t{1} << 20U})
          CHECK_NOTHROW(pass(file, written.size, written.digest, piece));
      }
    }
  }

  TEST_CASE("a changed byte, a missing end, bytes too many and another container are found") {
    const Scratch scratch;
    const auto written = format_test::write_container(scratch / "c", format_test::small_sample());
    Bytes file = format_test::read_file(scratch / "c");
    for (std::size_t at = 0; at < file.size(); at += unit_test::slowness) {
      CAPTURE(at);
      file[at] ^= std::byte{4};
      CHECK_THROWS_AS(pass(file, written.size, written.digest, 1000), Error);
      file[at] ^= std::byte{4};
    }
    for (std::size_t size = 0; size < file.size(); size += 97)
      CHECK_THROWS_AS(pass(ByteView(file).first(size), written.size, written.digest, 1000), Damaged);
    CHECK_THROWS_AS(pass(file, written.size - 8, written.digest, 1000), Damaged);
    CHECK_THROWS_AS(pass(file, written.size, Digest{}, 1000), Damaged);
    CHECK_NOTHROW(pass(file, written.size, written.digest, 1000));
  }

  TEST_CASE("sizes that no container has are refused at once") {
    for (const std::uint64_t size : {0UL, 1UL, 128UL, 192UL, granule + 128 + 9})
      CHECK_THROWS_AS(ContainerStream(size, Digest{}, "c"), Damaged);
  }
}
