// SPDX-License-Identifier: Apache-2.0
// Frozen memory reads as it was at the moment, whatever its owner does to it.
#include <doctest/doctest.h>

#include "capture/userfault.hpp"
#include "capture_support.hpp"
#include "scratch.hpp"

#include <ckpt/error.hpp>

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <thread>

using namespace ckpt;
using namespace ckpt::capture;
using namespace capture_test;

namespace {

std::size_t entries_of(const char* directory) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(directory), std::filesystem::directory_iterator()));
}

Errc code_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.code();
  }
  FAIL("nothing was thrown");
  return Errc::exists;
}

/// Ranges of all sizes at all alignments, some of which overlap.
std::vector<MemoryRange> random_ranges(const Mapped& memory, std::mt19937_64& random) {
  std::vector<MemoryRange> ranges;
  for (int i = 0; i < 12; ++i) {
    const std::size_t most = i % 3 == 0 ? 3 * mib : i % 3 == 1 ? 300 * kib : 5000;
    const std::size_t size = random() % most;
    const std::size_t at = random() % (memory.size() - size);
    ranges.push_back({.begin = memory.data() + at, .size = size, .copy = i == 7});
  }
  return ranges;
}

}  // namespace

TEST_SUITE("capture") {
  TEST_CASE("capture: what is overwritten right after the moment reads as it was") {
    const unit_test::Scratch scratch;
    constexpr std::size_t size = 6 * mib;
    {
      std::ofstream file(scratch / "f");
      file << std::string(size, 'x');
    }
    const int fd = ::open((scratch / "f").c_str(), O_RDONLY | O_CLOEXEC);
    REQUIRE(fd >= 0);
    for (const Way way : ways()) {
      Freezer freezer({.way = way, .memory = 24 * mib});
      Mapped memory(size);
      std::mt19937_64 random(5);
      int differing = 0;
      for (unsigned round = 0; round < 200 / slowness; ++round) {
        memory.fill(round);
        const std::vector<MemoryRange> ranges = random_ranges(memory, random);
        const Contents expected = contents_of(ranges);
        const auto frozen = freezer.prepare(ranges);
        frozen->freeze({});
        std::vector<std::thread> writers;
        writers.emplace_back([&] { std::memset(memory.data(), 1, size / 3); });
        writers.emplace_back([&] { std::memset(memory.data() + size / 3, 2, size / 3); });
        // The kernel writes, too.
        writers.emplace_back([&] {
          constexpr std::size_t from = size / 3 * 2;
          if (::pread(fd, memory.data() + from, size - from, 0) != static_cast<ssize_t>(size - from)) std::abort();
        });
        if (round % 20 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
        differing += differing_pieces(*frozen, expected, round % 2 == 0 ? 300 * kib : 3 * mib);
        CHECK(frozen->is_released());
        for (std::thread& writer : writers) writer.join();
        CHECK(memory.data()[0] == std::byte{1});
        CHECK(memory.data()[size - 1] == std::byte{'x'});
      }
      CHECK(differing == 0);
    }
    (void)::close(fd);
  }

  TEST_CASE("capture: huge pages and pages that were never touched") {
    if (!can_protect()) return;
    Freezer freezer({.way = Way::protect, .memory = 64 * mib});
    Mapped memory(24 * mib);
    (void)::madvise(memory.data(), memory.size(), MADV_HUGEPAGE);
    memory.fill(3, 3 * mib, 11 * mib);
    const std::vector<MemoryRange> ranges = {{.begin = memory.data() + 100, .size = memory.size() - 200}};
    Contents expected = contents_of({{.begin = memory.data() + 3 * mib, .size = 8 * mib}});
    expected[0].insert(expected[0].begin(), 3 * mib - 100, std::byte{0});
    expected[0].resize(memory.size() - 200);
    const auto frozen = freezer.prepare(ranges);
    frozen->freeze({});
    std::thread writer([&] { std::memset(memory.data(), 9, memory.size()); });
    writer.join();
    CHECK(frozen->timings().aside_bytes > 23 * mib);
    CHECK(differing_pieces(*frozen, expected) == 0);
    CHECK(memory.data()[12 * mib] == std::byte{9});
  }

  TEST_CASE("capture: what isn't written to is neither copied nor changed") {
    if (!can_protect()) return;
    Freezer freezer({.way = Way::protect, .memory = 4 * mib});
    Mapped memory(40 * mib);
    memory.fill(1);
    const std::vector<MemoryRange> ranges = {{.begin = memory.data(), .size = memory.size()}};
    const Contents expected = contents_of(ranges);
    const auto frozen = freezer.prepare(ranges);
    frozen->freeze({});
    CHECK(differing_pieces(*frozen, expected) == 0);
    const FreezeTimings timings = frozen->timings();
    CHECK(timings.protected_bytes == memory.size());
    CHECK(timings.copied_bytes == 0);
    CHECK(timings.aside_bytes == 0);
    CHECK(timings.why_copied.empty());
    memory.fill(2);
  }

  TEST_CASE("capture: writers wait for room, and no more than the room is taken") {
    if (!can_protect()) return;
    constexpr std::uint64_t budget = 5 * mib;
    Freezer freezer({.way = Way::protect, .memory = budget});
    Mapped memory(32 * mib);
    double waited = 0;
    for (unsigned round = 0; round < 5; ++round) {
      memory.fill(round);
      const std::vector<MemoryRange> ranges = {{.begin = memory.data(), .size = 20 * mib + 5},
                                               {.begin = memory.data() + 21 * mib, .size = 300 * kib},
                                               {.begin = memory.data() + 22 * mib, .size = 10 * mib}};
      const Contents expected = contents_of(ranges);
      const auto frozen = freezer.prepare(ranges);
      frozen->freeze({});
      std::vector<std::thread> writers;
      for (std::size_t w = 0; w < 4; ++w) {
        writers.emplace_back([&, w] { std::memset(memory.data() + w * 8 * mib, 7, 8 * mib); });
      }
      while (frozen->timings().aside_bytes < 4 * mib) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      CHECK(differing_pieces(*frozen, expected, mib) == 0);
      for (std::thread& writer : writers) writer.join();
      const FreezeTimings timings = frozen->timings();
      CHECK(timings.peak_aside_bytes <= budget);
      CHECK(timings.peak_aside_bytes > 2 * mib);
      waited += timings.wait_seconds;
      CHECK(timings.fault_seconds >= timings.wait_seconds);
    }
    CHECK(waited > 0);
  }

  TEST_CASE("capture: a writer that waits for room too long goes on, and the save fails") {
    if (!can_protect()) return;
    Freezer freezer({.way = Way::protect, .memory = 2 * mib, .patience = 0.2});
    Mapped memory(12 * mib);
    memory.fill(1);
    const auto frozen = freezer.prepare({{.begin = memory.data(), .size = memory.size()}});
    frozen->freeze({});
    std::memset(memory.data(), 7, memory.size());  // nobody reads
    std::vector<std::byte> buffer(memory.size());
    CHECK(code_of([&] { frozen->read(0, 0, buffer); }) == Errc::io);
    frozen->release(0, 0, memory.size());
    CHECK(frozen->is_released());
  }

  TEST_CASE("capture: two moments of the same memory at a time") {
    if (!can_protect()) return;
    Freezer one({.way = Way::protect, .memory = 64 * mib});
    Freezer two({.way = Way::protect, .memory = 64 * mib});
    Mapped memory(9 * mib);
    for (unsigned round = 0; round < 30; ++round) {
      memory.fill(round);
      const std::vector<MemoryRange> first = {{.begin = memory.data() + 10, .size = 5 * mib},
                                              {.begin = memory.data() + 5 * mib + 100, .size = 3 * mib}};
      const Contents first_expected = contents_of(first);
      const auto earlier = one.prepare(first);
      earlier->freeze({});
      memory.fill(round + 1000, 0, 3 * mib);
      const std::vector<MemoryRange> second = {{.begin = memory.data(), .size = memory.size()},
                                               {.begin = memory.data() + 3 * mib + 9, .size = mib}};
      const Contents second_expected = contents_of(second);
      const auto later = (round % 2 == 0 ? one : two).prepare(second);
      later->freeze({});
      std::thread writer([&] { std::memset(memory.data(), 7, memory.size()); });
      if (round % 3 == 0) {
        CHECK(differing_pieces(*earlier, first_expected) == 0);
        CHECK(differing_pieces(*later, second_expected) == 0);
      } else {
        CHECK(differing_pieces(*later, second_expected) == 0);
        CHECK(differing_pieces(*earlier, first_expected) == 0);
      }
      writer.join();
    }
  }

  TEST_CASE("capture: several savers of the same memory, each in its own thread") {
    if (!can_protect()) return;
    Mapped memory(4 * mib);
    memory.fill(8);
    Freezer freezer({.way = Way::protect, .memory = 16 * mib});
    std::atomic<int> differing = 0;
    std::vector<std::thread> savers;
    const std::vector<MemoryRange> ranges = {{.begin = memory.data(), .size = memory.size()}};
    const Contents expected = contents_of(ranges);
    for (int s = 0; s < 4; ++s) {
      savers.emplace_back([&] {
        for (int round = 0; round < 50; ++round) {
          const auto frozen = freezer.prepare(ranges);
          frozen->freeze({});
          differing += differing_pieces(*frozen, expected);
        }
      });
    }
    for (std::thread& saver : savers) saver.join();
    CHECK(differing == 0);
    memory.fill(9);
  }

  TEST_CASE("capture: memory that goes before it's read is an error, and only where it went") {
    if (!can_protect()) return;
    struct Case {
      const char* name;
      std::function<void(Mapped&)> go;
    };
    Mapped elsewhere(8 * mib);
    const std::vector<Case> cases = {
        {"unmapped", [](Mapped& m) { m.shrink(4 * mib); }},
        {"mapped anew",
         [](Mapped& m) {
           (void)::mmap(m.data() + 4 * mib, 4 * mib, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                        -1, 0);
         }},
        {"dropped", [](Mapped& m) { (void)::madvise(m.data() + 4 * mib, 4 * mib, MADV_DONTNEED); }},
        {"moved",
         [&](Mapped& m) {
           void* to = ::mremap(m.data() + 4 * mib, 4 * mib, 4 * mib, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere.data());
           REQUIRE(to == elsewhere.data());
           m.forget(4 * mib);
           std::memset(to, 3, 4 * mib);  // and may be written to
         }},
    };
    for (const Case& one : cases) {
      CAPTURE(one.name);
      Freezer freezer({.way = Way::protect, .memory = 64 * mib});
      Mapped memory(8 * mib);
      memory.fill(1);
      const std::vector<MemoryRange> ranges = {{.begin = memory.data(), .size = 2 * mib},
                                               {.begin = memory.data() + 6 * mib, .size = 2 * mib}};
      const Contents expected = contents_of(ranges);
      const auto frozen = freezer.prepare(ranges);
      frozen->freeze({});
      one.go(memory);
      std::vector<std::byte> buffer(2 * mib);
      frozen->read(0, 0, buffer);
      CHECK(std::memcmp(buffer.data(), expected[0].data(), buffer.size()) == 0);
      CHECK(code_of([&] { frozen->read(1, 0, buffer); }) == Errc::io);
      CHECK(code_of([&] { frozen->read(1, 0, buffer); }) == Errc::io);
      frozen->release(0, 0, 2 * mib);
      frozen->release(1, 0, 2 * mib);
      CHECK(frozen->is_released());
    }
  }

  TEST_CASE("capture: memory that goes while it's read is never read wrongly") {
    if (!can_protect()) return;
    Freezer freezer({.way = Way::protect, .memory = 64 * mib});
    int wrong = 0;
    for (unsigned round = 0; round < 200 / slowness; ++round) {
      Mapped memory(4 * mib);
      memory.fill(round);
      const std::vector<MemoryRange> ranges = {{.begin = memory.data(), .size = memory.size()}};
      const Contents expected = contents_of(ranges);
      const auto frozen = freezer.prepare(ranges);
      frozen->freeze({});
      std::thread owner([&] {
        if (round % 2 == 0) {
          (void)::madvise(memory.data(), memory.size(), MADV_DONTNEED);
        } else {
          (void)::mmap(memory.data(), memory.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                       -1, 0);
        }
        std::memset(memory.data(), 5, memory.size());
      });
      std::vector<std::byte> buffer(64 * kib);
      for (std::size_t at = 0; at < memory.size(); at += buffer.size()) {
        try {
          frozen->read(0, at, buffer);
        } catch (const Error& error) {
          CHECK(error.code() == Errc::io);
          break;
        }
        if (std::memcmp(buffer.data(), expected[0].data() + at, buffer.size()) != 0) ++wrong;
      }
      owner.join();
    }
    CHECK(wrong == 0);
  }

  TEST_CASE("capture: shared memory, files, unaligned ends and small ranges are copied, and why is said") {
    if (!can_protect()) return;
    const unit_test::Scratch scratch;
    { std::ofstream(scratch / "f") << std::string(mib, 'f'); }
    const int fd = ::open((scratch / "f").c_str(), O_RDWR | O_CLOEXEC);
    REQUIRE(fd >= 0);
    const Mapped shared(mib, MAP_SHARED | MAP_ANONYMOUS);
    const Mapped file(mib, MAP_PRIVATE, fd);
    const Mapped own(mib);
    (void)::close(fd);
    Freezer freezer({.way = Way::protect, .memory = 16 * mib});
    const auto timings_of = [&](const MemoryRange& range) {
      const Contents expected = contents_of({range});
      const auto frozen = freezer.prepare({range});
      frozen->freeze({});
      std::memset(const_cast<std::byte*>(range.begin), 1, range.size);
      CHECK(differing_pieces(*frozen, expected) == 0);
      return frozen->timings();
    };
    CHECK(timings_of({.begin = shared.data(), .size = mib}).copied_bytes == mib);
    CHECK(timings_of({.begin = shared.data(), .size = mib}).why_copied.find("shared") != std::string::npos);
    CHECK(timings_of({.begin = file.data(), .size = mib}).copied_bytes == mib);
    CHECK(timings_of({.begin = own.data(), .size = mib, .copy = true}).copied_bytes == mib);
    CHECK(timings_of({.begin = own.data(), .size = 60 * kib}).copied_bytes == 60 * kib);
    const FreezeTimings ends = timings_of({.begin = own.data() + 8, .size = mib - 16});
    CHECK(ends.copied_bytes + ends.protected_bytes == mib - 16);
    CHECK(ends.copied_bytes < 2 * 65536);
    CHECK(!ends.why_copied.empty());
    CHECK(timings_of({.begin = own.data(), .size = mib}).why_copied.empty());
  }

  TEST_CASE("capture: memory that another userfaultfd watches is copied, and why is said") {
    if (!can_protect()) return;
    Mapped memory(4 * mib);
    memory.fill(1);
    const Userfault other;
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    REQUIRE(other.watch({address + mib, address + 2 * mib}) == 0);
    Freezer freezer({.way = Way::protect, .memory = 16 * mib});
    const std::vector<MemoryRange> ranges = {{.begin = memory.data(), .size = memory.size()}};
    const Contents expected = contents_of(ranges);
    const auto frozen = freezer.prepare(ranges);
    frozen->freeze({});
    memory.fill(2);
    CHECK(differing_pieces(*frozen, expected) == 0);
    CHECK(frozen->timings().copied_bytes >= mib);
    CHECK(frozen->timings().why_copied.find("another userfaultfd") != std::string::npos);
    CHECK(other.unwatch({address + mib, address + 2 * mib}) == 0);
  }

  TEST_CASE("capture: readers of what could not be frozen are told so") {
    Mapped memory(12 * mib);
    memory.fill(1);
    Freezer freezer({.way = Way::copy, .memory = 3 * mib, .patience = 0.05});
    for (int round = 0; round < 5; ++round) {
      const auto frozen = freezer.prepare({{.begin = memory.data() + 1, .size = memory.size() - 1}});
      std::thread reader;
      int wrong = 0;
      bool is_told = false;
      CHECK(code_of([&] {
              frozen->freeze([&] {
                reader = std::thread([&] {  // who reads and never releases
                  std::vector<std::byte> buffer(mib);
                  for (std::size_t i = 0; !is_told; ++i) {
                    const std::size_t at = i % 11 * mib;
                    try {
                      frozen->read(0, at, buffer);
                      if (std::memcmp(buffer.data(), memory.data() + 1 + at, mib) != 0) ++wrong;
                    } catch (const Error& error) {
                      is_told = error.code() == Errc::busy;
                    }
                  }
                });
              });
            }) == Errc::busy);
      reader.join();
      CHECK(wrong == 0);
    }
  }

  TEST_CASE("capture: many small ranges are copied together") {
    Mapped memory(8 * mib);
    memory.fill(4);
    std::vector<MemoryRange> ranges;
    for (std::size_t i = 0; i < 12000; ++i)
      ranges.push_back({.begin = memory.data() + i * 640 + i % 7, .size = i % 633});
    const Contents expected = contents_of(ranges);
    for (const Way way : ways()) {
      Freezer freezer({.way = way, .memory = 6 * mib});
      const auto frozen = freezer.prepare(ranges);
      frozen->freeze({});
      std::memset(memory.data(), 1, memory.size());
      CHECK(differing_pieces(*frozen, expected) == 0);
      CHECK(frozen->is_released());
      CHECK(frozen->timings().waves == 1);
      memory.fill(4);
    }
  }

  TEST_CASE("capture: a state larger than the room for its copy is copied in waves") {
    Mapped memory(20 * mib);
    memory.fill(4);
    const std::vector<MemoryRange> ranges = {{.begin = memory.data() + 3, .size = 11 * mib},
                                             {.begin = memory.data() + 12 * mib, .size = 8 * mib}};
    const Contents expected = contents_of(ranges);
    for (const bool backwards : {false, true}) {
      memory.fill(4);
      Freezer freezer({.way = Way::copy, .memory = 5 * mib});
      const auto frozen = freezer.prepare(ranges);
      std::atomic<int> differing = 0;
      std::thread reader;
      frozen->freeze([&] {
        reader = std::thread([&] {
          if (!backwards) {
            differing = differing_pieces(*frozen, expected);
            return;
          }
          std::vector<std::byte> buffer(mib);
          for (std::size_t range = 2; range-- > 0;) {
            for (std::size_t at = ranges[range].size; at > 0; at -= mib) {
              frozen->read(range, at - mib, buffer);
              if (std::memcmp(buffer.data(), expected[range].data() + at - mib, mib) != 0) ++differing;
              frozen->release(range, at - mib, mib);
              std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
          }
        });
      });
      std::memset(memory.data(), 1, memory.size());
      reader.join();
      CHECK(differing == 0);
      CHECK(frozen->is_released());
      const FreezeTimings timings = frozen->timings();
      CHECK(timings.waves > 1);
      CHECK(timings.peak_aside_bytes <= 5 * mib);
      CHECK(timings.copied_bytes == 19 * mib);
    }
  }

  TEST_CASE("capture: memory that only its owner can read is copied, in waves as well") {
    constexpr long memfd_secret = 447;  // as devices' memory, it's refused to process_vm_readv()
    const int fd = static_cast<int>(::syscall(memfd_secret, O_CLOEXEC));
    if (fd < 0) {
      MESSAGE("skipped: no memfd_secret here");
      return;
    }
    REQUIRE(::ftruncate(fd, 6 * mib) == 0);
    void* p = ::mmap(nullptr, 6 * mib, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)::close(fd);
    if (p == MAP_FAILED) {
      MESSAGE("skipped: no secret memory here");
      return;
    }
    auto* memory = static_cast<std::byte*>(p);
    for (std::size_t i = 0; i < 6 * mib; ++i) memory[i] = static_cast<std::byte>(i * 7 >> 8U);
    const std::vector<MemoryRange> ranges = {{.begin = memory, .size = 6 * mib, .copy = true}};
    const Contents expected = contents_of(ranges);
    for (const Way way : ways()) {
      Freezer freezer({.way = way, .memory = 3 * mib});
      const auto frozen = freezer.prepare(ranges);
      std::atomic<int> differing = -1;
      std::thread reader;
      frozen->freeze([&] { reader = std::thread([&] { differing = differing_pieces(*frozen, expected); }); });
      reader.join();
      CHECK(differing == 0);
      CHECK(frozen->timings().waves > 1);
    }
    (void)::munmap(p, 6 * mib);
  }

  TEST_CASE("capture: if no one reads what has no room, freezing fails and everything is released") {
    Mapped memory(8 * mib);
    Freezer freezer({.way = Way::copy, .memory = 4 * mib, .patience = 0.1});
    const auto frozen = freezer.prepare({{.begin = memory.data(), .size = memory.size()}});
    CHECK(code_of([&] { frozen->freeze({}); }) == Errc::busy);
    CHECK(frozen->is_released());
    const auto smaller = freezer.prepare({{.begin = memory.data(), .size = 4 * mib}});
    smaller->freeze({});
    CHECK(smaller->timings().copied_bytes == 4 * mib);
  }

  TEST_CASE("capture: nothing at all, and ranges of nothing") {
    for (const Way way : ways()) {
      Freezer freezer({.way = way, .memory = 4 * mib});
      const auto nothing = freezer.prepare({});
      bool has_begun = false;
      CHECK_FALSE(nothing->is_released());
      nothing->freeze([&] { has_begun = true; });
      CHECK(has_begun);
      CHECK(nothing->is_released());
      const auto empty = freezer.prepare({{}, {.begin = nullptr, .size = 0, .copy = true}});
      empty->freeze({});
      CHECK(empty->is_released());
      CHECK(empty->count() == 2);
      empty->read(0, 0, {});
      empty->release(1, 0, 0);
      CHECK(code_of([&] { empty->release(1, 0, 1); }) == Errc::invalid_argument);
      CHECK(code_of([&] { empty->freeze({}); }) == Errc::invalid_argument);
    }
    CHECK(code_of([] { Freezer({.way = Way::copy, .memory = 1}); }) == Errc::invalid_argument);
  }

  TEST_CASE("capture: a range that isn't mapped is refused") {
    if (!can_protect()) return;
    Mapped memory(4 * mib);
    memory.shrink(2 * mib);
    Freezer freezer({.way = Way::protect, .memory = 4 * mib});
    const auto frozen = freezer.prepare({{.begin = memory.data(), .size = 3 * mib}});
    CHECK(code_of([&] { frozen->freeze({}); }) == Errc::invalid_argument);
    CHECK(frozen->is_released());
  }

  TEST_CASE("capture: what is dropped unread leaves nothing protected") {
    for (const Way way : ways()) {
      Mapped memory(5 * mib);
      auto freezer = std::make_unique<Freezer>(FreezerOptions{.way = way, .memory = 16 * mib});
      auto unfrozen = freezer->prepare({{.begin = memory.data(), .size = memory.size()}});
      unfrozen.reset();
      auto frozen = freezer->prepare({{.begin = memory.data(), .size = memory.size()}});
      frozen->freeze({});
      memory.fill(1, 0, 3 * mib);
      freezer.reset();  // what it froze outlives it
      std::vector<std::byte> buffer(mib);
      frozen->read(0, 0, buffer);
      CHECK(buffer[12345] == std::byte{0});
      frozen.reset();
      memory.fill(2);
    }
  }

  TEST_CASE("capture: a child of the owner writes as it likes and can use nothing") {
    if (!can_protect()) return;
    Freezer freezer({.way = Way::protect, .memory = 16 * mib});
    Mapped memory(6 * mib);
    memory.fill(1);
    const std::vector<MemoryRange> ranges = {{.begin = memory.data(), .size = memory.size()}};
    const Contents expected = contents_of(ranges);
    auto frozen = freezer.prepare(ranges);
    frozen->freeze({});
    std::memset(memory.data(), 1, mib);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      std::memset(memory.data(), 2, memory.size());
      int status = 0;
      try {
        std::byte byte{};
        frozen->read(0, 0, {&byte, 1});
        status = 1;
      } catch (const Error& error) {
        status = error.code() == Errc::invalid_argument ? 0 : 2;
      }
      try {
        (void)freezer.prepare(ranges);
        status = 3;
      } catch (const Error&) {
        // As it should.
      }
      frozen.reset();
      ::_exit(status);
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    std::thread writer([&] { std::memset(memory.data(), 3, memory.size()); });
    writer.join();
    CHECK(differing_pieces(*frozen, expected) == 0);
  }

  TEST_CASE("capture: a thousand moments leave no descriptor, thread or mapping behind") {
    for (const Way way : ways()) {
      Freezer freezer({.way = way, .memory = 8 * mib});
      Mapped memory(3 * mib);
      const auto once = [&](unsigned i) {
        const auto frozen = freezer.prepare({{.begin = memory.data() + i % 3, .size = memory.size() - 5}});
        frozen->freeze({});
        memory.data()[i * 997 % memory.size()] = std::byte{1};
        if (i % 2 == 0) frozen->release(0, 0, memory.size() - 5);
      };
      for (unsigned i = 0; i < 10; ++i) once(i);
      const std::size_t descriptors = entries_of("/proc/self/fd");
      const std::size_t threads = entries_of("/proc/self/task");
      const auto mappings = [] {
        std::ifstream map("/proc/self/maps");
        return std::count(std::istreambuf_iterator<char>(map), {}, '\n');
      };
      const auto before = mappings();
      for (unsigned i = 0; i < 1000 / slowness; ++i) once(i);
      CHECK(entries_of("/proc/self/fd") == descriptors);
      CHECK(entries_of("/proc/self/task") <= threads);  // one that has ended may be listed for a while
      CHECK(mappings() <= before + 5);
    }
  }

  TEST_CASE("capture: steady memory is read as it is, and held until it's released") {
    for (const Way way : ways()) {
      Freezer freezer({.way = way, .memory = 64 * mib});
      Mapped late(4 * mib);
      Mapped kept(4 * mib);
      late.fill(1);
      kept.fill(2);
      const auto memory = freezer.prepare(
          {{.begin = late.data(), .size = late.size(), .steady = true}, {.begin = kept.data(), .size = kept.size()}});
      memory->freeze({});
      late.fill(3);
      const Contents expected =
          contents_of({{.begin = late.data(), .size = late.size()}, {.begin = kept.data(), .size = kept.size()}});
      kept.fill(4);
      CHECK(memory->timings().protected_bytes + memory->timings().copied_bytes == kept.size());
      memory->release(1, 0, kept.size());
      CHECK(!memory->is_released());
      std::vector<std::byte> read(late.size());
      memory->read(0, 0, read);
      CHECK(read == expected[0]);
      memory->release(0, 0, mib);
      CHECK(!memory->is_released());
      memory->release(0, mib, late.size() - mib);
      CHECK(memory->is_released());
    }
  }
}
