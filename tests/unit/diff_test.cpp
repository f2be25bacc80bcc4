// SPDX-License-Identifier: Apache-2.0
// What differs in tensors: numbers against the plain way to get them, views, blocks that needn't be read, pairing.
#include "core/float_formats.hpp"
#include "diff_support.hpp"
#include "ops/diff_numbers.hpp"
#include "ops/widen.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <random>

using namespace ckpt;
using namespace export_test;
using namespace diff_test;

namespace {

constexpr float no = NAN;
constexpr float inf = INFINITY;

std::vector<float> normal(std::size_t count, unsigned seed, float deviation = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> values(0, deviation);
  std::vector<float> out(count);
  for (float& value : out) value = values(random);
  return out;
}

Named floats(const std::string& name, const std::vector<float>& values) {
  return {name, "F32", {static_cast<std::int64_t>(values.size())}, bytes_of(values)};
}

/// The difference of one tensor "t" in two safetensors files.
struct Pair {
  Pair(const Named& a, const Named& b, const DiffOptions& options = {}) {
    write_file(scratch / "a.safetensors", safetensors_of({a}));
    write_file(scratch / "b.safetensors", safetensors_of({b}));
    report = compare(scratch / "a.safetensors", scratch / "b.safetensors", options);
  }
  [[nodiscard]] const TensorDiff& tensor() const { return find(report, "t"); }
  [[nodiscard]] const DiffNumbers& numbers() const { return tensor().numbers.value(); }

  unit_test::Scratch scratch;
  DiffReport report;
};

DiffNumbers of_floats(const std::vector<float>& a, const std::vector<float>& b, const DiffOptions& options = {}) {
  return Pair(floats("t", a), floats("t", b), options).numbers();
}

/// Counts the bytes that a comparison of two stored steps reads.
std::uint64_t bytes_read(const std::string& store) { return compare(store + "@1", store + "@2").bytes_read; }

}  // namespace

TEST_SUITE("diff") {
  TEST_CASE("numbers of dense change are those of their definitions") {
    const std::vector<float> a = normal(5000, 1);
    std::vector<float> b = normal(5000, 2, 0.01F);
    for (std::size_t i = 0; i < a.size(); ++i) b[i] += a[i];
    double sum = 0, squares = 0, squares_a = 0, squares_b = 0, products = 0, most = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double d = double{b[i]} - double{a[i]};
      sum += std::abs(d);
      squares += d * d;
      squares_a += double{a[i]} * double{a[i]};
      squares_b += double{b[i]} * double{b[i]};
      products += double{a[i]} * double{b[i]};
      most = std::max(most, std::abs(d));
    }
    const Pair pair(floats("t", a), floats("t", b));
    const DiffNumbers& n = pair.numbers();
    CHECK(pair.tensor().change == Change::changed);
    CHECK(n.elements == 5000);
    CHECK(n.changed == 5000);
    CHECK(n.max_abs == most);
    CHECK(n.mean_abs() == doctest::Approx(sum / 5000));
    CHECK(n.l2() == doctest::Approx(std::sqrt(squares)));
    CHECK(n.relative_l2() == doctest::Approx(std::sqrt(squares / squares_a)));
    CHECK(n.cosine().value() == doctest::Approx(products / std::sqrt(squares_a * squares_b)));
  }

  TEST_CASE("relative L2 and cosine are of the changed elements, with whole of all") {
    std::vector<float> a(1000, 3);
    std::vector<float> b = a;
    b[7] = 4;
    const DiffNumbers some = of_floats(a, b);
    CHECK(some.changed == 1);
    CHECK(some.mean_abs() == doctest::Approx(1.0 / 1000));
    CHECK(some.relative_l2() == doctest::Approx(1.0 / 3));
    const DiffNumbers all = of_floats(a, b, {.whole = true});
    CHECK(all.changed == 1);
    CHECK(all.relative_l2() == doctest::Approx(1 / (3 * std::sqrt(1000.0))));
    CHECK(all.cosine().value() == doctest::Approx((999 * 9 + 12) / std::sqrt(9000.0 * (999 * 9 + 16))));
  }

  TEST_CASE("NaN and Inf are counted on either side and kept out of the sums") {
    const DiffNumbers n = of_floats({1, no, inf, 2, no, -inf, 5}, {1, 0, inf, no, no, inf, 6});
    CHECK(n.changed == 4);
    CHECK(n.nan_a == 1);
    CHECK(n.nan_b == 1);
    CHECK(n.inf_a == 1);
    CHECK(n.inf_b == 1);
    CHECK(n.max_abs == 1);
    const DiffNumbers all = of_floats({no, inf, 1}, {no, inf, 2}, {.whole = true});
    CHECK(all.nan_a == 1);
    CHECK(all.inf_b == 1);
    CHECK(all.changed == 1);
  }

  TEST_CASE("an element has changed if its bits have") {
    const DiffNumbers n = of_floats({0.0F, 1, 2}, {-0.0F, 1, 2});
    CHECK(n.changed == 1);
    CHECK(n.max_abs == 0);
    CHECK(n.relative_l2() == 0);
    CHECK_FALSE(n.cosine().has_value());
  }

  TEST_CASE("what a tolerance covers is the same, and nothing else is") {
    const DiffOptions absolute{.tolerance = Tolerance{.absolute = 0.5}};
    CHECK(of_floats({1, 0.0F, no, inf}, {1.5F, -0.0F, no, inf}, absolute).changed == 0);
    CHECK(of_floats({1, 1, inf, 1}, {1.6F, no, -inf, inf}, absolute).changed == 4);
    const DiffOptions relative{.tolerance = Tolerance{.relative = 0.1}};
    CHECK(of_floats({100, 1}, {109, 1.2F}, relative).changed == 1);
    const Pair pair(floats("t", {1}), floats("t", {1.25F}), absolute);
    CHECK(pair.tensor().change == Change::same);
    CHECK(pair.report.same());
    CHECK(failure_of([&] { of_floats({1}, {1}, {.tolerance = Tolerance{.absolute = -1}}); }).code ==
          Errc::invalid_argument);
  }

  TEST_CASE("very small and very large differences aren't lost") {
    const std::vector<double> a{1e300, 1e-300};
    const std::vector<double> b{-1e300, 3e-300};
    const Pair large({"t", "F64", {2}, bytes_of(a)}, {"t", "F64", {2}, bytes_of(b)});
    CHECK(large.numbers().l2() == doctest::Approx(2e300));
    CHECK(large.numbers().relative_l2() == doctest::Approx(2));
    const std::vector<double> c{1e-300};
    const std::vector<double> d{3e-300};
    const Pair small({"t", "F64", {1}, bytes_of(c)}, {"t", "F64", {1}, bytes_of(d)});
    CHECK(small.numbers().l2() == doctest::Approx(2e-300));
    CHECK(small.numbers().relative_l2() == doctest::Approx(2));
  }

  TEST_CASE("for every type the changed elements are those whose bits differ") {
    std::mt19937 random(3);
    for (std::uint8_t code = 0; code < dtype_count; ++code) {
      const auto dtype = static_cast<DType>(code);
      CAPTURE(name_of(dtype));
      const unsigned bits = bits_of(dtype);
      const std::size_t count = 3000;
      Bytes a(count * bits / 8);
      for (std::byte& byte : a) byte = static_cast<std::byte>(random());
      Bytes b = a;
      // Every seventh element gets other bits, in its lowest one.
      std::size_t wanted = 0;
      for (std::size_t i = 0; i < count; i += 7) {
        b[i * bits / 8] ^= static_cast<std::byte>(1U << (i * bits % 8));
        ++wanted;
      }
      DiffNumbers some;
      ops::add_pairs({}, dtype, a, dtype, b, count, some);
      CHECK(some.changed == wanted);
      DiffNumbers none;
      ops::add_pairs({.whole = true}, dtype, a, dtype, a, count, none);
      CHECK(none.changed == 0);
      CHECK(none.max_abs == 0);
      if (ops::is_numeric(dtype) && ops::numbers_of(dtype).per_element == 1) {
        ops::Widened values;
        ops::widen(dtype, a, 0, ops::widened_run, values);
        long double squares = 0;
        for (const long double value : values) squares += std::isfinite(value) ? value * value : 0;
        DiffNumbers first;
        ops::add_pairs({.whole = true}, dtype, a, dtype, a, ops::widened_run, first);
        CHECK(static_cast<double>(std::sqrt(first.squares_a)) ==
              doctest::Approx(static_cast<double>(std::sqrt(squares))));
      }
    }
  }

  TEST_CASE("another type is compared by value") {
    const std::vector<float> wide{1, 1.0F + 0x1p-9F, -2};
    const std::vector<std::uint16_t> narrow{0x3f80, 0x3f80, 0xc000};
    const Pair pair(floats("t", wide), {"t", "BF16", {3}, bytes_of(narrow)});
    CHECK(pair.tensor().change == Change::retyped);
    CHECK(pair.numbers().changed == 1);
    CHECK(pair.numbers().max_abs == 0x1p-9);
    CHECK_FALSE(pair.report.same());
  }

  TEST_CASE("another shape is compared if the elements can be paired") {
    const Pair pair({"t", "F32", {2, 3}, bytes_of(normal(6, 1))}, {"t", "F32", {3, 2}, bytes_of(normal(6, 1))});
    CHECK(pair.tensor().change == Change::reshaped);
    CHECK(pair.numbers().changed == 0);
    const Pair other({"t", "F32", {2}, bytes_of(normal(2, 1))}, {"t", "F32", {3}, bytes_of(normal(3, 1))});
    CHECK(other.tensor().change == Change::reshaped);
    CHECK_FALSE(other.tensor().numbers.has_value());
  }

  TEST_CASE("views are compared by the order of their elements, however they lie") {
    constexpr std::uint32_t rows = 130;
    constexpr std::uint32_t columns = 90;
    const std::vector<float> plain = normal(rows * columns, 5);
    std::vector<float> turned(plain.size());
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < columns; ++c) turned[c * rows + r] = plain[r * columns + c];
    }
    const unit_test::Scratch scratch;
    const std::string on = torch_writer::storage("FloatStorage", "0", rows * columns);
    const auto file = [&](const std::string& name, const std::string& tensor, const std::vector<float>& values) {
      write_file(scratch / name, torch_writer::archive(torch_writer::dict({{torch_writer::text("t"), tensor}}),
                                                       {{"0", bytes_of(values)}}));
      return scratch / name;
    };
    const std::string straight = file("a.pt", view(on, 0, {rows, columns}, {columns, 1}), plain);
    const std::string across = file("b.pt", view(on, 0, {rows, columns}, {1, rows}), turned);
    CHECK(compare(straight, across).same());
    CHECK(compare(across, straight).same());
    std::vector<float> changed = turned;
    changed[5 * rows + 3] += 8;
    const std::string other = file("c.pt", view(on, 0, {rows, columns}, {1, rows}), changed);
    const DiffReport both_turned = compare(across, other);
    const DiffReport one_turned = compare(straight, other);
    for (const DiffReport* report : {&both_turned, &one_turned}) {
      CHECK(find(*report, "t").numbers->changed == 1);
      CHECK(find(*report, "t").numbers->max_abs == doctest::Approx(8));
    }
    // One row that stands for all: what changes in it changes in each.
    std::vector<float> row = plain;
    const std::string repeated = file("d.pt", view(on, 0, {rows, columns}, {0, 1}), row);
    row[4] += 1;
    const std::string moved = file("e.pt", view(on, 0, {rows, columns}, {0, 1}), row);
    CHECK(find(compare(repeated, moved), "t").numbers->changed == rows);
    CHECK(find(compare(repeated, moved), "t").numbers->l2() == doctest::Approx(std::sqrt(double{rows})));
  }

  TEST_CASE("views of all fixtures are the same as their contiguous forms") {
    const unit_test::Scratch scratch;
    const std::string pt = source_test::fixture_path("aliases.pt");
    save(scratch / "store", {pt});
    auto options = options_for(scratch / "store", {"*"}, ExportFormat::safetensors, scratch / "plain.safetensors");
    Monitor monitor;
    (void)export_tensors(options, monitor);
    for (const TensorDiff& tensor : compare(pt, scratch / "plain.safetensors").tensors) {
      CAPTURE(tensor.name);
      CHECK(tensor.change == Change::same);
    }
  }

  TEST_CASE("blocks that both sides hold aren't read") {
    const unit_test::Scratch scratch;
    std::vector<float> values = normal(10'000'000, 1);
    const auto file = [&](std::vector<Named> tensors) {
      write_file(scratch / "m.safetensors", safetensors_of(tensors));
      return std::vector<std::string>{scratch / "m.safetensors"};
    };
    save(scratch / "store", file({floats("t", values), floats("u", normal(100, 2))}), 1);
    save(scratch / "store", file({floats("t", values), floats("u", normal(100, 2))}), 2);
    CHECK(compare(scratch / "store@1", scratch / "store@2").same());
    CHECK(bytes_read(scratch / "store") == 0);

    values[5'000'000] += 1;
    save(scratch / "other", file({floats("t", values), floats("u", normal(100, 2))}), 1);
    const DiffReport report = compare(scratch / "store@1", scratch / "other");
    CHECK(find(report, "t").numbers->changed == 1);
    CHECK(find(report, "t").numbers->elements == 10'000'000);
    CHECK(find(report, "u").change == Change::same);
    CHECK(report.bytes_read <= 2 * (4U << 20U));
    CHECK(report.bytes_read > 0);
    // All of it, the equal part once.
    const DiffReport whole = compare(scratch / "store@1", scratch / "other", {.whole = true});
    CHECK(whole.bytes_read >= 40'000'000);
    CHECK(whole.bytes_read <= 40'000'000 + 3 * (4U << 20U));
    const DiffReport plain = compare(scratch / "store@1", scratch / "m.safetensors", {.whole = true});
    CHECK(find(whole, "t").numbers->relative_l2() == doctest::Approx(find(plain, "t").numbers->relative_l2()));
  }

  TEST_CASE("blocks that are cut elsewhere are read, and say the same") {
    const unit_test::Scratch scratch;
    std::vector<float> values = normal(3'000'000, 1);
    write_file(scratch / "a/m.safetensors", safetensors_of({floats("t", values)}));
    // What comes before moves the tensor in its file, and small neighbours share a block.
    values[2'999'999] = 0;
    write_file(scratch / "b/m.safetensors",
               safetensors_of({floats("a", normal(3, 1)), floats("t", values), floats("z", normal(3, 1))}));
    save(scratch / "store", {scratch / "a"}, 1);
    save(scratch / "store", {scratch / "b"}, 2);
    const DiffReport report = compare(scratch / "store@1", scratch / "store@2");
    CHECK(find(report, "t").numbers->changed == 1);
    CHECK(find(report, "a").change == Change::added);
    CHECK(find(report, "z").change == Change::added);
  }

  TEST_CASE("results don't depend on the number of workers") {
    const unit_test::Scratch scratch;
    std::vector<Named> a{floats("large", normal(9'000'000, 1))};
    std::vector<Named> b{floats("large", normal(9'000'000, 2))};
    for (unsigned i = 0; i < 200; ++i) {
      a.push_back(floats("small" + std::to_string(i), normal(10 + i, i)));
      b.push_back(floats("small" + std::to_string(i), normal(10 + i, i + 1)));
    }
    write_file(scratch / "a.safetensors", safetensors_of(a));
    write_file(scratch / "b.safetensors", safetensors_of(b));
    const auto with = [&](unsigned jobs) {
      return compare(scratch / "a.safetensors", scratch / "b.safetensors", {.jobs = jobs});
    };
    const DiffReport one = with(1);
    const DiffReport five = with(5);
    for (std::size_t i = 0; i < one.tensors.size(); ++i) {
      CHECK(one.tensors[i].numbers->sum_squares == five.tensors[i].numbers->sum_squares);
      CHECK(one.tensors[i].numbers->products == five.tensors[i].numbers->products);
    }
  }

  TEST_CASE("every fixture is the same as itself, plain or stored") {
    const unit_test::Scratch scratch;
    save(scratch / "store", {CKPT_FIXTURES});
    const DiffReport report = compare(scratch / "store", CKPT_FIXTURES, {.whole = true});
    CHECK(report.same());
    CHECK(report.tensors.size() > 200);
    CHECK(compare(CKPT_FIXTURES, CKPT_FIXTURES).same());
  }

  TEST_CASE("a torch file is the same as its safetensors form") {
    const unit_test::Scratch scratch;
    const std::vector<float> values = normal(100, 1);
    write_file(scratch / "m.pt",
               torch_writer::archive(torch_writer::dict({{torch_writer::text("t"), torch_writer::floats("0", 100)}}),
                                     {{"0", bytes_of(values)}}));
    write_file(scratch / "m.safetensors", safetensors_of({floats("t", values)}));
    CHECK(compare(scratch / "m.pt", scratch / "m.safetensors").same());
  }

  TEST_CASE("sums of modules are those of their tensors, in the order of a tree") {
    const unit_test::Scratch scratch;
    const auto file = [&](const std::string& name, float by) {
      std::vector<Named> tensors;
      for (const char* key : {"m.2.w", "m.10.w", "m.b", "m-x.w"}) tensors.push_back(floats(key, {by, by, by, by}));
      write_file(scratch / name, safetensors_of(tensors));
      return scratch / name;
    };
    const auto sums = sum_by_module(compare(file("a.safetensors", 1), file("b.safetensors", 2)));
    std::string order;
    for (const ModuleDiff& sum : sums) order += "[" + sum.prefix + "]";
    CHECK(order == "[][m][m.2][m.10][m-x]");
    CHECK(sums[0].tensors == 4);
    CHECK(sums[1].tensors == 3);
    CHECK(sums[1].numbers.elements == 12);
    CHECK(sums[1].numbers.l2() == doctest::Approx(std::sqrt(12.0)));
    CHECK(sums[0].depth == 0);
    CHECK(sums[2].depth == 2);
  }

  TEST_CASE("a picture of hostile names is text that XML allows") {
    DiffReport report;
    report.a = "<&\"\x01\xff";
    report.b = "b";
    for (int i = 0; i < 3000; ++i) {
      std::string name;
      for (int k = 0; k < 50; ++k) name += std::to_string(i % 7) + "<\x02\xc0.";
      TensorDiff tensor{.change = Change::changed, .name = name + std::to_string(i), .elements = 10};
      tensor.numbers = DiffNumbers{.elements = 10, .changed = 5, .sum_squares = 1e-9L, .squares_a = 1};
      tensor.has_values = true;
      report.tensors.push_back(tensor);
    }
    const std::string svg = draw_diff(report);
    CHECK(svg.size() < 4'000'000);
    for (const char c : svg) {
      const bool fine = static_cast<unsigned char>(c) >= 0x20 || c == '\n';
      if (!fine) FAIL("a control character");
    }
    CHECK(svg.find('\xff') == std::string::npos);
    CHECK(svg.find('\xc0') == std::string::npos);
    CHECK(svg.find("&lt;") != std::string::npos);
    CHECK(draw_diff({}).starts_with("<svg"));
  }
}

TEST_SUITE("diff pairs") {
  TEST_CASE("files of one kind pair by position, so that steps in names don't matter") {
    const unit_test::Scratch scratch;
    write_file(scratch / "a/model_step_9.safetensors", safetensors_of({floats("t", {1})}));
    write_file(scratch / "a/notes_9.txt", "same");
    write_file(scratch / "b/model_step_10.safetensors", safetensors_of({floats("t", {1})}));
    write_file(scratch / "b/notes_10.txt", "same");
    CHECK(compare(scratch / "a", scratch / "b").same());
    write_file(scratch / "b/notes_10.txt", "some");
    CHECK(files_of(compare(scratch / "a", scratch / "b")) == "changed notes_9.txt -> notes_10.txt 1\n");
  }

  TEST_CASE("tensors pair wherever they are, and a file whose tensors have partners isn't missing") {
    const unit_test::Scratch scratch;
    write_file(scratch / "a/1.safetensors", safetensors_of({floats("x", {1})}));
    write_file(scratch / "a/2.safetensors", safetensors_of({floats("y", {2})}));
    write_file(scratch / "b/all.safetensors", safetensors_of({floats("y", {2}), floats("x", {1})}));
    CHECK(compare(scratch / "a", scratch / "b").same());
    CHECK(compare(scratch / "b", scratch / "a").same());
  }

  TEST_CASE("one name in several ranks pairs by rank, and by global offset where the ranks are others") {
    const unit_test::Scratch scratch;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      const std::string own = "fsdp2-rank" + std::to_string(rank) + ".pt";
      save(scratch / "st", {source_test::fixture_path(own)}, 1, rank, 2);
      save(scratch / "st", {source_test::fixture_path("fsdp2-rank" + std::to_string(1 - rank) + ".pt")}, 2, rank, 2);
    }
    const DiffReport report = compare(scratch / "st@1", scratch / "st@2");
    for (const TensorDiff& tensor : report.tensors) {
      CAPTURE(tensor.name);
      if (!tensor.global_offsets.empty()) CHECK(tensor.change == Change::same);
    }
  }

  TEST_CASE("what one side alone has is added or removed") {
    const unit_test::Scratch scratch;
    write_file(scratch / "a/old.bin.txt", "x");
    write_file(scratch / "a/m.safetensors", safetensors_of({floats("x", {1}), floats("gone", {1})}));
    write_file(scratch / "b/m.safetensors", safetensors_of({floats("x", {1}), floats("new", {1})}));
    write_file(scratch / "b/other.json", "{}");
    const DiffReport report = compare(scratch / "a", scratch / "b");
    CHECK(find(report, "gone").change == Change::removed);
    CHECK(find(report, "new").change == Change::added);
    CHECK(report.tensors.back().name == "new");
    CHECK(files_of(report) == "removed old.bin.txt ->  0\nadded  -> other.json 0\n");
  }

  TEST_CASE("links are compared by their targets") {
    const unit_test::Scratch scratch;
    for (const std::string side : {"a", "b"}) {
      write_file(scratch / (side + "/one"), "1");
      write_file(scratch / (side + "/two"), "2");
    }
    std::filesystem::create_symlink("one", scratch / "a/link");
    std::filesystem::create_symlink("two", scratch / "b/link");
    CHECK(files_of(compare(scratch / "a", scratch / "b")) == "changed link -> link 0\n");
    CHECK(compare(scratch / "a", scratch / "a").same());
  }

  TEST_CASE("an operand is a store, a file or a directory, and else an error") {
    const unit_test::Scratch scratch;
    write_file(scratch / "d/f@1", "x");
    save(scratch / "st", {scratch / "d"}, 1);
    CHECK(compare(scratch / "d/f@1", scratch / "d/f@1").same());
    CHECK(compare(scratch / "st", scratch / "d").a == scratch / "st@1");
    CHECK(failure_of([&] { compare(scratch / "nowhere", scratch / "d"); }).code == Errc::not_found);
    CHECK(failure_of([&] { compare(scratch / "st@7", scratch / "d"); }).code == Errc::not_found);
    CHECK(failure_of([&] { compare("", scratch / "d"); }).code == Errc::invalid_argument);
    write_file(scratch / "bad.pt", "PK\x03\x04 cut short");
    const Failure malformed = failure_of([&] { compare(scratch / "bad.pt", scratch / "d"); });
    CHECK(malformed.code == Errc::malformed);
  }
}
