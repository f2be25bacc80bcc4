// SPDX-License-Identifier: Apache-2.0
// Tensors with their statistics, and the sums of files.
#include "core/digest.hpp"
#include "export_support.hpp"

#include <doctest/doctest.h>

#include <cmath>

using namespace ckpt;
using namespace export_test;

namespace {

std::vector<TensorListing> listed(const std::string& address, bool stats, unsigned jobs = 2) {
  Monitor monitor;
  return list_tensors({.from = parse_address(address), .tensors = {}, .stats = stats, .jobs = jobs}, monitor);
}

const TensorListing& find(const std::vector<TensorListing>& all, const std::string& name) {
  for (const TensorListing& each : all) {
    if (each.name == name) return each;
  }
  throw std::runtime_error("no tensor " + name);
}

std::string floats(std::size_t count, float first, float step) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = first + step * static_cast<float>(i % 1000);
  return std::string(as_text(std::as_bytes(std::span(values))));
}

}  // namespace

TEST_SUITE("tensor listing") {
  TEST_CASE("tensors are listed with what the parser found, and statistics only on demand") {
    const unit_test::Scratch scratch;
    save(scratch / "store", {source_test::fixture_path("train_step5.pt"), source_test::fixture_path("aliases.pt")});
    const auto plain = listed(scratch / "store", false);
    CHECK(plain.front().file == "aliases.pt");
    CHECK(plain.back().file == "train_step5.pt");
    CHECK(find(plain, "view2d").shape == std::vector<std::int64_t>{10, 100});
    CHECK(find(plain, "view2d").bytes == 4000);
    CHECK(find(plain, "view2d").dtype == "float32");
    CHECK_FALSE(find(plain, "view2d").stats.has_value());
    CHECK(find(listed(scratch / "store", true), "view2d").stats.has_value());
  }

  TEST_CASE("statistics of views are those of their contiguous bytes") {
    const unit_test::Scratch scratch;
    save(scratch / "store", {source_test::fixture_path("aliases.pt")});
    const std::string file = source_test::fixture("aliases.pt");
    const source::Parsed parsed = source_test::parse_fixture("aliases.pt");
    const auto all = listed(scratch / "store", true);
    REQUIRE(all.size() == parsed.tensors.size());
    for (const Tensor& tensor : parsed.tensors) {
      CAPTURE(tensor.name);
      const std::string bytes = source_test::contiguous(tensor, file);
      double sum = 0;
      double squares = 0;
      double low = INFINITY;
      for (std::size_t at = 0; at < bytes.size(); at += 4) {
        const double value = std::bit_cast<float>(load_le<std::uint32_t>(as_bytes(bytes).data() + at));
        sum += value;
        squares += value * value;
        low = std::min(low, value);
      }
      const TensorStats stats = find(all, tensor.name).stats.value();
      CHECK(stats.mean.has_value() == !bytes.empty());
      if (bytes.empty()) continue;
      CHECK(stats.min == low);
      CHECK(*stats.mean == doctest::Approx(sum * 4 / static_cast<double>(bytes.size())));
      CHECK(*stats.norm == doctest::Approx(std::sqrt(squares)));
    }
  }

  TEST_CASE("statistics of tensors of many blocks and of many in one block don't depend on the workers") {
    const unit_test::Scratch scratch;
    std::vector<Named> tensors{{"large", "F32", {9'000'000}, floats(9'000'000, -1, 0.5)}};
    tensors[0].bytes.replace(4 * 8'999'999, 4, std::string("\x00\x00\x80\x7f", 4));
    for (int i = 0; i < 300; ++i) {
      tensors.push_back({"small" + std::to_string(i), "F32", {10}, floats(10, static_cast<float>(i), 1)});
    }
    write_file(scratch / "m.safetensors", safetensors_of(tensors));
    save(scratch / "store", {scratch / "m.safetensors"});
    const auto one = listed(scratch / "store", true, 1);
    const auto five = listed(scratch / "store", true, 5);
    CHECK(find(one, "large").stats->inf == 1);
    CHECK(find(one, "large").stats->min == -1);
    CHECK(find(one, "large").stats->max == -1 + 0.5 * 999);
    CHECK(find(one, "small7").stats->mean == 7 + 4.5);
    for (std::size_t i = 0; i < one.size(); ++i) {
      CHECK(one[i].stats->mean == five[i].stats->mean);
      CHECK(one[i].stats->norm == five[i].stats->norm);
    }
  }

  TEST_CASE("a pattern that matches nothing is named") {
    const unit_test::Scratch scratch;
    save(scratch / "store", {source_test::fixture_path("aliases.pt")});
    Monitor monitor;
    const Failure failure = failure_of([&] {
      (void)list_tensors({.from = parse_address(scratch / "store"), .tensors = {"a", "nowhere"}}, monitor);
    });
    CHECK(failure.code == Errc::not_found);
    CHECK(mentions(failure, "nowhere"));
  }

  TEST_CASE("every fixture can be listed with statistics") {
    const unit_test::Scratch scratch;
    save(scratch / "store", {CKPT_FIXTURES});
    for (const TensorListing& each : listed(scratch / "store", true)) {
      CAPTURE(each.file);
      CAPTURE(each.name);
      if (each.meta) CHECK_FALSE(each.stats.has_value());
      if (each.dtype == "float32" && !each.meta) CHECK(each.stats.has_value());
    }
  }
}

TEST_SUITE("file sums") {
  TEST_CASE("the sum of every file and hard link is that of its bytes") {
    const unit_test::Scratch scratch;
    write_file(scratch / "d/empty", "");
    write_file(scratch / "d/text", "abc");
    std::filesystem::create_directory(scratch / "d/dir");
    std::filesystem::create_hard_link(scratch / "d/text", scratch / "d/zlink");
    std::filesystem::create_symlink("text", scratch / "d/soft");
    std::string large = floats(3'000'000, 0, 1);
    write_file(scratch / "d/large", large);
    save(scratch / "store", {scratch / "d"});
    Monitor monitor;
    std::string got;
    for (const FileSum& sum : file_sums(parse_address(scratch / "store"), 3, monitor)) {
      got += sum.path + " " + sum.xxh128 + "\n";
    }
    const std::string text = to_hex(xxh3_128(std::string_view("abc")));
    CHECK(got == "empty " + to_hex(xxh3_128(std::string_view(""))) + "\nlarge " +
                     to_hex(xxh3_128(std::string_view(large))) + "\ntext " + text + "\nzlink " + text + "\n");
  }

  TEST_CASE("a path of several ranks comes once if it's the same in all, else by rank") {
    const unit_test::Scratch scratch;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      const std::string own = scratch / "r" + std::to_string(rank);
      write_file(own + "/config", "same");
      save(scratch / "same", {own}, 1, rank, 2);
      write_file(own + "/state", std::to_string(rank));
      save(scratch / "other", {own}, 1, rank, 2);
    }
    Monitor monitor;
    const auto same = file_sums(parse_address(scratch / "same"), 1, monitor);
    REQUIRE(same.size() == 1);
    CHECK(same[0].path == "config");
    std::string paths;
    for (const FileSum& sum : file_sums(parse_address(scratch / "other"), 1, monitor)) paths += sum.path + " ";
    CHECK(paths == "rank-00000/config rank-00000/state rank-00001/config rank-00001/state ");
  }
}
