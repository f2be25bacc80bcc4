// SPDX-License-Identifier: Apache-2.0
// What runs in several threads: the ordered pipeline, the direct writer, the adaptive reader. The thread sanitizer's
// build runs this suite.
#include "core/bytes.hpp"
#include "core/pipeline.hpp"
#include "format_support.hpp"
#include "os/adaptive_reader.hpp"
#include "os/direct_writer.hpp"
#include "scratch.hpp"

#include <ckpt/error.hpp>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <thread>

using namespace ckpt;
using unit_test::Scratch;

namespace {

constexpr std::size_t granule = os::DirectWriter::granule;

struct Granules {
  Bytes seen;
  bool whole = true;
};

/// Writes `content` in pieces of the given sizes, over and over; returns what the watcher saw.
Granules write_in_pieces(const std::string& path, ByteView content, const std::vector<std::size_t>& pieces) {
  Granules granules;
  os::DirectWriter writer(os::open(path, O_RDWR | O_CREAT | O_EXCL, 0644), path, [&](std::span<const std::byte> full) {
    granules.whole = granules.whole && full.size() == granule;
    append(granules.seen, full);
  });
  std::size_t at = 0;
  for (std::size_t i = 0; at < content.size(); ++i) {
    const std::size_t size = std::min(pieces[i % pieces.size()], content.size() - at);
    writer.append(content.subspan(at, size));
    at += size;
    CHECK(writer.position() == at);
  }
  const auto partial = writer.partial_granule();
  CHECK(partial.size() == content.size() % granule);
  CHECK(std::equal(partial.begin(), partial.end(), content.end() - static_cast<std::ptrdiff_t>(partial.size())));
  (void)writer.finish();
  return granules;
}

}  // namespace

TEST_SUITE("pipeline") {
  TEST_CASE("results come in order, each once, whatever the number of workers") {
    for (const unsigned workers : {1U, 2U, 8U}) {
      for (const std::size_t count : {0U, 1U, 2U, 7U, 1000U}) {
        std::vector<std::size_t> got;
        run_ordered(
            count, workers, 3, [](std::size_t i) { return i * i; },
            [&](std::size_t i, std::size_t result) {
              CHECK(result == i * i);
              got.push_back(i);
            });
        REQUIRE(got.size() == count);
        CHECK(std::is_sorted(got.begin(), got.end()));
      }
    }
  }

  TEST_CASE("results that are ready out of order wait for their turn") {
    std::vector<std::size_t> got;
    run_ordered(
        40, 4, 8,
        [](std::size_t i) {
          if (i % 4 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
          return i;
        },
        [&](std::size_t, std::size_t i) { got.push_back(i); });
    REQUIRE(got.size() == 40);
    CHECK(std::is_sorted(got.begin(), got.end()));
  }

  TEST_CASE("no more results are alive than the window holds") {
    std::atomic<int> alive = 0, most = 0;
    struct Counted {
      explicit Counted(std::atomic<int>* n) : count(n) { ++*count; }
      Counted(Counted&& other) noexcept : count(std::exchange(other.count, nullptr)) {}
      Counted& operator=(Counted&& other) noexcept {
        std::swap(count, other.count);
        return *this;
      }
      ~Counted() {
        if (count != nullptr) --*count;
      }
      std::atomic<int>* count;
    };
    run_ordered(
        300, 8, 5,
        [&](std::size_t) {
          Counted result(&alive);
          int before = most;
          while (alive > before && !most.compare_exchange_weak(before, alive)) {
          }
          return result;
        },
        [](std::size_t i, const Counted&) {
          if (i % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        });
    CHECK(most <= 5);
    CHECK(alive == 0);
  }

  TEST_CASE("an exception of a worker ends the rest and comes out") {
    for (const unsigned workers : {1U, 4U}) {
      std::atomic<std::size_t> produced = 0;
      std::size_t consumed = 0;
      CHECK_THROWS_WITH_AS(run_ordered(
                               100000, workers, 4,
                               [&](std::size_t i) {
                                 ++produced;
                                 if (i == 20) throw std::runtime_error("twenty");
                                 return i;
                               },
                               [&](std::size_t, std::size_t) { ++consumed; }),
                           "twenty", std::runtime_error);
      CHECK(consumed <= 20);
      CHECK(produced < 100);
    }
  }

  TEST_CASE("an exception of the consumer ends the rest and comes out") {
    std::atomic<std::size_t> produced = 0;
    CHECK_THROWS_WITH_AS(run_ordered(
                             100000, 4, 4,
                             [&](std::size_t i) {
                               ++produced;
                               return i;
                             },
                             [&](std::size_t i, std::size_t) {
                               if (i == 20) throw std::runtime_error("twenty");
                             }),
                         "twenty", std::runtime_error);
    CHECK(produced < 100);
  }

  TEST_CASE("an exception with one item comes out, too") {
    CHECK_THROWS_AS(run_ordered(
                        1, 4, 4, [](std::size_t) -> int { throw std::runtime_error("x"); }, [](std::size_t, int) {}),
                    std::runtime_error);
  }

  TEST_CASE("parallel work is done once each") {
    std::vector<std::atomic<int>> done(500);
    run_parallel(done.size(), 4, [&](std::size_t i) { ++done[i]; });
    CHECK(std::all_of(done.begin(), done.end(), [](const auto& n) { return n == 1; }));
  }

  TEST_CASE("a pool lends an item to one at a time and takes it back") {
    Pool<std::unique_ptr<int>> pool;
    int* first = nullptr;
    {
      auto lease = pool.take();
      *lease = std::make_unique<int>(1);
      first = lease->get();
      CHECK((*pool.take()).get() == nullptr);
    }
    auto a = pool.take();
    auto b = pool.take();
    CHECK(((*a).get() == first || (*b).get() == first));
    CHECK((*a).get() != (*b).get());
  }

  TEST_CASE("what is written in any pieces is what the file holds and what the watcher saw") {
    const Scratch scratch;
    format_test::Random random(11);
    const std::vector<std::size_t> sizes = {0,
                                            1,
                                            4095,
                                            4096,
                                            4097,
                                            granule - 1,
                                            granule,
                                            granule + 1,
                                            3 * granule + 17,
                                            8U << 20U,
                                            (8U << 20U) + 1,
                                            (37U << 20U) + 4095};
    const std::vector<std::vector<std::size_t>> pieces = {
        {1U << 22U}, {7, 4096, 100000, 1, 65536}, {granule}, {(9U << 20U) + 3}};
    for (const std::size_t size : sizes) {
      const Bytes content = format_test::random_bytes(size, random);
      for (std::size_t p = 0; p < pieces.size(); ++p) {
        if (size > (8U << 20U) && p == 1) continue;
        CAPTURE(size);
        CAPTURE(p);
        const std::string path = scratch / "f";
        const Granules granules = write_in_pieces(path, content, pieces[p]);
        CHECK(granules.whole);
        CHECK(granules.seen.size() == size / granule * granule);
        CHECK(std::equal(granules.seen.begin(), granules.seen.end(), content.begin()));
        CHECK(format_test::read_file(path) == content);
        std::filesystem::remove(path);
      }
    }
  }

  TEST_CASE("zeros are appended like anything else") {
    const Scratch scratch;
    os::DirectWriter writer(os::open(scratch / "f", O_RDWR | O_CREAT, 0644), "f", [](auto) {});
    writer.append_zeros(10000);
    writer.append(as_bytes("x"));
    writer.append_zeros(0);
    (void)writer.finish();
    Bytes expected(10000);
    expected.push_back(std::byte{'x'});
    CHECK(format_test::read_file(scratch / "f") == expected);
  }

  TEST_CASE("a write that fails in the background comes out") {
    if (!std::filesystem::exists("/dev/full")) return;
    os::DirectWriter writer(os::open("/dev/full", O_RDWR), "/dev/full", [](auto) {});
    const Bytes content(1U << 20U);
    CHECK_THROWS_AS(
        [&] {
          for (int i = 0; i < 64; ++i) writer.append(content);
          (void)writer.finish();
        }(),
        Error);
  }

  TEST_CASE("a writer that is given up stops without a word") {
    const Scratch scratch;
    {
      os::DirectWriter writer(os::open(scratch / "f", O_RDWR | O_CREAT, 0644), "f", [](auto) {});
      writer.append(Bytes(20U << 20U));
    }
    CHECK(std::filesystem::exists(scratch / "f"));
  }

  TEST_CASE("any range of a file is read as it is, from the cache and past it, by many at once") {
    const Scratch scratch;
    format_test::Random random(12);
    const Bytes content = format_test::random_bytes((3U << 20U) + 123, random);
    format_test::write_file(scratch / "f", content);
    for (const os::CacheUse use : {os::CacheUse::adaptive, os::CacheUse::bypass}) {
      const os::AdaptiveReader reader(scratch / "f", use);
      CHECK(reader.size() == content.size());
      std::atomic<int> wrong = 0;
      std::vector<std::thread> threads;
      for (unsigned t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
          format_test::Random own(t);
          os::AlignedBuffer buffer;
          for (int i = 0; i < 200; ++i) {
            const std::size_t offset = own() % (content.size() + 10000);
            const std::size_t size = own() % 3 == 0 ? own() % 10 : own() % 300000;
            const auto got = reader.read(offset, size, buffer);
            const std::size_t there = offset >= content.size() ? 0 : std::min(size, content.size() - offset);
            if (got.size() != there) {
              ++wrong;
            } else if (there > 0 &&
                       !std::equal(got.begin(), got.end(), content.begin() + static_cast<std::ptrdiff_t>(offset))) {
              ++wrong;
            }
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      CHECK(wrong == 0);
    }
  }

  TEST_CASE("a file that shrinks while it's open gives fewer bytes, not a fault") {
    const Scratch scratch;
    format_test::write_file(scratch / "f", Bytes(100000));
    const os::AdaptiveReader reader(scratch / "f");
    std::filesystem::resize_file(scratch / "f", 5000);
    os::AlignedBuffer buffer;
    CHECK(reader.read(0, 100000, buffer).size() == 5000);
    CHECK(reader.read(4096, 10000, buffer).size() == 904);
    CHECK(reader.read(50000, 100, buffer).empty());
  }

  TEST_CASE("what isn't a regular file is refused") {
    const Scratch scratch;
    CHECK_THROWS_AS(os::AdaptiveReader(scratch.path()), Error);
    CHECK_THROWS_AS(os::AdaptiveReader(scratch / "none"), Error);
  }
}
