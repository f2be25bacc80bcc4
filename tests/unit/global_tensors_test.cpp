// SPDX-License-Identifier: Apache-2.0
// Tensors cut at random over shards, and read again in random boxes to random places; and what doesn't fit together.
#include "ops/global_tensors.hpp"
#include "export_support.hpp"
#include "sharded_support.hpp"

#include <doctest/doctest.h>

#include <thread>

using namespace ckpt;
using namespace sharded_test;
using export_test::Failure;
using export_test::failure_of;
using export_test::mentions;
using ops::Box;
using ops::GlobalTensor;
using ops::GlobalTensors;

namespace {

class Dice {
 public:
  explicit Dice(unsigned seed) : random_(seed) {}
  std::int64_t pick(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  bool one_in(std::int64_t n) { return pick(1, n) == 1; }

  std::string noise(std::size_t size) {
    std::string bytes(size, '\0');
    for (char& c : bytes) c = static_cast<char>(random_());
    return bytes;
  }

  Whole whole(const std::string& name) {
    constexpr DType types[] = {DType::uint8, DType::bfloat16, DType::float32, DType::int64, DType::complex128};
    Whole whole{.name = name, .dtype = types[pick(0, 4)]};
    for (std::int64_t dims = pick(0, 4); dims > 0; --dims) whole.shape.push_back(one_in(15) ? 0 : pick(1, 9));
    whole.values = noise(element_count({.shape = whole.shape}).value() * whole.width());
    return whole;
  }

  Box box_in(const Box& of) {
    Box box = of;
    for (std::size_t d = 0; d < of.shape.size(); ++d) {
      const std::int64_t begin = pick(0, of.shape[d]);
      box.offsets[d] += begin;
      box.shape[d] = one_in(10) ? 0 : pick(0, of.shape[d] - begin);
    }
    return box;
  }

  /// Cuts without order: also into parts of no elements.
  void cut(const Box& box, std::vector<Box>& into, int depth = 0) {
    if (box.shape.empty() || depth == 4 || one_in(4)) {
      into.push_back(box);
      return;
    }
    const auto d = static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(box.shape.size()) - 1));
    Box before = box;
    Box after = box;
    before.shape[d] = pick(0, box.shape[d]);
    after.offsets[d] += before.shape[d];
    after.shape[d] -= before.shape[d];
    cut(before, into, depth + 1);
    cut(after, into, depth + 1);
  }

  /// Strides under which no two elements share a place, in any order of the dimensions, perhaps with gaps.
  Numbers strides(const Numbers& shape) {
    std::vector<std::size_t> order;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      order.insert(order.begin() + pick(0, static_cast<std::int64_t>(d)), d);
    }
    Numbers strides(shape.size());
    std::int64_t next = one_in(3) ? pick(1, 3) : 1;
    for (const std::size_t d : order) {
      strides[d] = next;
      next *= std::max<std::int64_t>(1, shape[d]);
      if (one_in(4)) next += pick(0, 3);
    }
    return strides;
  }

 private:
  std::mt19937 random_;
};

/// The box as it's read, contiguous.
std::string read_box(const GlobalTensors& tensors, const GlobalTensor& tensor, const Box& box, unsigned jobs = 1) {
  const Monitor monitor;
  const std::uint64_t bits = ops::volume_of(box) * bits_of(tensor.dtype);
  std::string bytes((bits + 7) / 8, '\0');
  tensors.read(tensor, box, contiguous_strides(box.shape), std::as_writable_bytes(std::span(bytes)).data(), jobs,
               monitor);
  return bytes;
}

std::string read_all(const GlobalTensors& tensors, const std::string& name) {
  const GlobalTensor& tensor = tensors.find(name);
  return read_box(tensors, tensor, ops::whole_of(tensor.shape), 3);
}

struct Opened {
  explicit Opened(const std::vector<std::vector<File>>& shards, const Selection& select = {})
      : tensors(save(store_test::new_store(scratch), shards), select, Monitor()) {}
  unit_test::Scratch scratch;
  GlobalTensors tensors;
};

Whole line(std::int64_t length, const std::string& name = "w") {
  Dice dice(11);
  return {.name = name,
          .dtype = DType::int16,
          .shape = {length},
          .values = dice.noise(2 * static_cast<std::size_t>(length))};
}

/// Shards that each hold these ranges of a line.
Failure failure_of_ranges(const std::vector<std::pair<std::int64_t, std::int64_t>>& ranges) {
  const Whole whole = line(10);
  std::vector<std::vector<File>> shards;
  for (const auto& [begin, end] : ranges) shards.push_back({{"s.pt", {part_of(whole, {{begin}, {end - begin}})}}});
  const Opened opened(shards);
  return failure_of([&] { (void)read_all(opened.tensors, "w"); });
}

}  // namespace

TEST_SUITE("global tensors") {
  TEST_CASE("tensors cut at random over shards are read in random boxes to random places") {
    for (unsigned seed = 0; seed < 60; ++seed) {
      CAPTURE(seed);
      Dice dice(seed);
      const auto ranks = dice.pick(1, 5);
      std::vector<std::vector<File>> shards(static_cast<std::size_t>(ranks));
      for (std::size_t r = 0; r < shards.size(); ++r) shards[r] = {{"step7/rank" + std::to_string(r) + ".pt", {}}};
      std::vector<Whole> wholes;
      for (int t = 0; t < 6; ++t) {
        const Whole& whole = wholes.emplace_back(dice.whole("layer." + std::to_string(t)));
        std::vector<Box> boxes;
        dice.cut(ops::whole_of(whole.shape), boxes);
        for (const Box& box : boxes) {
          for (std::int64_t copies = dice.one_in(4) ? dice.pick(2, 3) : 1; copies > 0; --copies) {
            Part part = part_of(whole, box);
            part.strides = dice.one_in(2) ? dice.strides(box.shape) : Numbers{};
            part.typed = dice.one_in(2);
            auto& to = shards[static_cast<std::size_t>(dice.pick(0, ranks - 1))][0].parts;
            const auto of_it = [&](const Part& other) {
              return other.global_shape == part.global_shape && other.name.starts_with(whole.name);
            };
            const auto before = std::count_if(to.begin(), to.end(), of_it);
            // Without dimensions it's whole, and no part.
            if (before > 0 && whole.shape.empty()) continue;
            if (before > 0) part.name += '#' + std::to_string(before + 1);
            to.push_back(std::move(part));
          }
        }
        // An owner elsewhere: this one has no bytes for it.
        auto& other = shards[static_cast<std::size_t>(dice.pick(0, ranks - 1))][0].parts;
        const auto named = [&](const Part& part) { return part.name == whole.name; };
        if (std::none_of(other.begin(), other.end(), named)) {
          other.push_back({.name = whole.name, .dtype = whole.dtype, .shape = whole.shape});
        }
      }
      const Opened opened(shards);
      REQUIRE(opened.tensors.all().size() == wholes.size());
      const Monitor monitor;
      for (const Whole& whole : wholes) {
        const GlobalTensor& found = opened.tensors.find(whole.name);
        REQUIRE(found.problem == "");
        CHECK(found.shape == whole.shape);
        CHECK(found.dtype == whole.dtype);
        CHECK((read_all(opened.tensors, whole.name) == whole.values));
        for (int round = 0; round < 4; ++round) {
          const Box box = dice.box_in(ops::whole_of(whole.shape));
          const Numbers strides = dice.strides(box.shape);
          CAPTURE(ops::to_string(box));
          Tensor target{.dtype = whole.dtype, .shape = box.shape, .strides = strides};
          std::string memory(view_end(target).value() + 7, 'M');
          std::string want = memory;
          const std::string values = whole.values_of(box);
          std::size_t at = 0;
          for_each_index(box.shape, [&](const Numbers& index) {
            want.replace(place_in(index, strides) * whole.width(), whole.width(), values.substr(at, whole.width()));
            at += whole.width();
          });
          opened.tensors.read(found, box, strides, std::as_writable_bytes(std::span(memory)).data(), 2, monitor);
          CHECK((memory == want));
        }
      }
    }
  }

  TEST_CASE("large tensors of many blocks, transposed ones among them, are read in parallel and by several threads") {
    Dice dice(3);
    const Whole whole{.name = "w", .dtype = DType::float32, .shape = {1500, 2500}, .values = dice.noise(15'000'000)};
    Part above = part_of(whole, {{0, 0}, {850, 2500}});
    Part left = part_of(whole, {{850, 0}, {650, 900}});
    Part right = part_of(whole, {{850, 900}, {650, 1600}});
    right.strides = {1, 650};
    above.typed = left.typed = true;
    const Opened opened({{{"a.pt", {above}}}, {{"b.pt", {left}}}, {{"c.pt", {right}}}});
    // Files of different names: three tensors that aren't joined.
    CHECK(failure_of([&] { (void)opened.tensors.find("w"); }).code == Errc::invalid_argument);
    const Opened joined({{{"r0.pt", {above}}}, {{"r1.pt", {left}}}, {{"r2.pt", {right}}}});
    CHECK((read_all(joined.tensors, "w") == whole.values));
    std::vector<std::string> got(3);
    std::vector<std::thread> threads;
    const auto box_of = [](std::size_t i) { return Box{{static_cast<std::int64_t>(250 * i), 100}, {750, 2000}}; };
    for (std::size_t i = 0; i < got.size(); ++i) {
      threads.emplace_back([&, i] { got[i] = read_box(joined.tensors, joined.tensors.find("w"), box_of(i), 2); });
    }
    for (std::thread& thread : threads) thread.join();
    for (std::size_t i = 0; i < got.size(); ++i) CHECK((got[i] == whole.values_of(box_of(i))));
  }

  TEST_CASE("gaps are found, and named") {
    const Failure failure = failure_of_ranges({{0, 4}, {6, 10}});
    CHECK(failure.code == Errc::damaged);
    CHECK(failure.message == "tensor 'w' has a gap: no shard holds [4:6] of [0:10]");
    CHECK(mentions(failure_of_ranges({{0, 4}, {4, 9}}), "[9:10]"));
    CHECK(failure_of_ranges({{0, 4}, {4, 10}}).message == "(none)");
  }

  TEST_CASE("a box beside the gap can be read") {
    const Whole whole = line(10);
    const Opened opened({{{"s.pt", {part_of(whole, {{0}, {4}})}}}});
    CHECK(read_box(opened.tensors, opened.tensors.find("w"), {{1}, {3}}) == whole.values_of({{1}, {3}}));
  }

  TEST_CASE("overlaps that aren't replicas are found, and named") {
    const Failure failure = failure_of_ranges({{0, 6}, {4, 10}});
    CHECK(failure.code == Errc::damaged);
    CHECK(failure.message ==
          "tensor 'w' has parts that overlap and aren't the same: [0:6] of rank 0 ('s.pt') and [4:10] of rank 1 "
          "('s.pt')");
    CHECK(failure_of_ranges({{0, 10}, {0, 10}}).message == "(none)");
  }

  TEST_CASE("replicas that differ are found, wherever their blocks are cut") {
    const Whole whole = line(100'000);
    Whole other = whole;
    for (const bool same : {true, false}) {
      if (!same) other.values[150'000] = static_cast<char>(other.values[150'000] + 1);
      Part first = part_of(whole, ops::whole_of(whole.shape));
      Part second = part_of(other, ops::whole_of(whole.shape));
      first.typed = true;
      const Opened opened({{{"s.pt", {first}}}, {{"s.pt", {part_of(line(9, "v"), {{0}, {9}}), second}}}});
      const Failure failure = failure_of([&] { (void)read_all(opened.tensors, "w"); });
      CHECK(mentions(failure, same ? "(none)" : "differs in [0:100000] between rank 0 ('s.pt') and rank 1 ('s.pt')"));
    }
  }

  TEST_CASE("a replica stands in for one whose blocks are damaged") {
    const Whole whole = line(100'000);
    const Part part = part_of(whole, ops::whole_of(whole.shape));
    const Opened opened({{{"s.pt", {part}}}, {{"s.pt", {part}}}});
    const store::Checkpoint& checkpoint = opened.tensors.checkpoint();
    const std::string marker = whole.values.substr(1000, 16);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      const std::string path = checkpoint.shard_path(checkpoint.manifest.shards.at(rank));
      std::string bytes = source_test::read_file(path);
      bytes.at(bytes.find(marker)) ^= 1;
      std::filesystem::permissions(path, std::filesystem::perms::owner_all);
      std::ofstream(path, std::ios::binary) << bytes;
      const GlobalTensors tensors(checkpoint, {}, Monitor());
      std::string got;
      const Failure failure = failure_of([&] { got = read_all(tensors, "w"); });
      CHECK((got == whole.values) == (rank == 0));
      CHECK((failure.code == Errc::damaged) == (rank == 1));
    }
  }

  TEST_CASE("parts that disagree on shape or type are no tensor") {
    const Whole whole = line(10);
    Part longer = part_of(whole, {{5}, {5}});
    longer.global_shape = {11};
    Part typed = part_of(whole, {{5}, {5}});
    typed.dtype = DType::bfloat16;
    Part outside = part_of(whole, {{5}, {5}});
    outside.global_offsets = {6};
    for (const auto& [part, text] : {std::pair(longer, "is int16 [10] for rank 0 ('s.pt') and int16 [11] for rank 1"),
                                     std::pair(typed, "and bfloat16 [10] for rank 1"),
                                     std::pair(outside, "has a part outside of its shape int16 [10], at rank 1")}) {
      const Opened opened({{{"s.pt", {part_of(whole, {{0}, {5}})}}}, {{"s.pt", {part}}}});
      const Failure failure = failure_of([&] { (void)read_all(opened.tensors, "w"); });
      CHECK(failure.code == Errc::damaged);
      CHECK_MESSAGE(mentions(failure, text), failure.message);
    }
  }

  TEST_CASE("bits of a view are resolved, and elements of less than a byte come as a whole") {
    const std::string two("\x01\x00\x02\x00", 4);
    const Part negative{.name = "n", .dtype = DType::int16, .shape = {2}, .values = two, .negative = true};
    const Part nibbles{.name = "f", .dtype = DType::float4, .shape = {3}, .values = "\x21\x03"};
    const Opened opened({{{"s.pt", {negative, nibbles}}}});
    CHECK(read_all(opened.tensors, "n") == "\xff\xff\xfe\xff");
    CHECK(read_all(opened.tensors, "f") == "\x21\x03");
    const GlobalTensor& cut = opened.tensors.find("f");
    CHECK(failure_of([&] { (void)read_box(opened.tensors, cut, {{1}, {2}}); }).code == Errc::unsupported);
  }

  TEST_CASE("what isn't there, has no bytes or doesn't fit is refused") {
    const Whole whole = line(10);
    const Part meta{.name = "m", .dtype = DType::int16, .shape = {3}};
    const Opened opened({{{"ema.pt", {part_of(whole, {{0}, {10}})}}, {"s.pt", {part_of(whole, {{0}, {10}}), meta}}}});
    CHECK(failure_of([&] { (void)opened.tensors.find("x"); }).code == Errc::not_found);
    CHECK(failure_of([&] { (void)opened.tensors.find("w"); }).message ==
          "the name 'w' stands for several tensors: those of 'ema.pt', 's.pt'");
    CHECK(failure_of([&] { (void)read_all(opened.tensors, "m"); }).code == Errc::unsupported);
    const GlobalTensor& tensor = opened.tensors.all().front();
    CHECK(failure_of([&] { (void)read_box(opened.tensors, tensor, {{8}, {3}}); }).code == Errc::invalid_argument);
    const Monitor monitor;
    std::vector<std::byte> memory(100);
    for (const Numbers& strides : {Numbers{0}, Numbers{-1}, Numbers{1, 1}, Numbers{INT64_MAX}}) {
      const auto read = [&] { opened.tensors.read(tensor, {{0}, {3}}, strides, memory.data(), 1, monitor); };
      CHECK(failure_of(read).code == Errc::invalid_argument);
    }
    const Opened selected({{{"ema.pt", {part_of(whole, {{0}, {10}})}}, {"s.pt", {meta}}}}, {.files = {"e*"}});
    CHECK(selected.tensors.all().size() == 1);
    CHECK(failure_of([&] { const Opened none({{{"s.pt", {meta}}}}, {.files = {"x*"}}); }).code == Errc::not_found);
    CHECK(failure_of([&] { const Opened none({{{"s.pt", {meta}}}}, {.rank = 3}); }).code == Errc::not_found);
  }
}
