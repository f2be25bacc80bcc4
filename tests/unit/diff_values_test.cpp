// SPDX-License-Identifier: Apache-2.0
// What differs besides tensors: values in pickles and JSON, metadata, records, bytes.
#include "diff_support.hpp"

#include <doctest/doctest.h>

using namespace ckpt;
using namespace export_test;
using namespace diff_test;
using namespace torch_writer;

namespace {

/// What two pickles differ in, each the object of a torch file.
std::string pickles(const std::string& a, const std::string& b) {
  const unit_test::Scratch scratch;
  write_file(scratch / "a.pt", archive(a, {{"0", std::string(40, 'a')}}));
  write_file(scratch / "b.pt", archive(b, {{"0", std::string(40, 'a')}}, "other"));
  return values_of(compare(scratch / "a.pt", scratch / "b.pt"));
}

std::string jsons(const std::string& a, const std::string& b) {
  const unit_test::Scratch scratch;
  write_file(scratch / "a/state.json", a);
  write_file(scratch / "b/state.json", b);
  const DiffReport report = compare(scratch / "a", scratch / "b");
  return values_of(report) + files_of(report);
}

std::string real(double value) {
  std::uint64_t bits = std::bit_cast<std::uint64_t>(value);
  std::string out = "G";
  for (int i = 7; i >= 0; --i) out.push_back(static_cast<char>(bits >> (8 * i) & 0xffU));
  return out;
}

}  // namespace

TEST_SUITE("diff values") {
  TEST_CASE("scalars are named by their path, with the old and the new value") {
    CHECK(pickles(dict({{text("epoch"), integer(5)}, {text("opt"), dict({{text("lr"), real(0.1)}})}}),
                  dict({{text("opt"), dict({{text("lr"), real(0.05)}})}, {text("epoch"), integer(6)}})) ==
          "changed epoch: 5 -> 6\nchanged opt.lr: 0.1 -> 0.05\n");
    CHECK(pickles(dict({{text("a"), "N"}, {text("b"), "\x88"}}), dict({{text("a"), text("x")}, {text("b"), "\x89"}})) ==
          "changed a: None -> 'x'\nchanged b: True -> False\n");
    CHECK(pickles(dict({{text("n"), real(NAN)}}), dict({{text("n"), real(NAN)}})).empty());
    CHECK(pickles(dict({{text("n"), integer(1)}}), dict({{text("n"), real(1)}})) == "changed n: 1 -> 1.0\n");
  }

  TEST_CASE("lists and tuples are compared by place, keys that read alike by their order") {
    CHECK(pickles(dict({{text("betas"), tuple({real(0.9), real(0.99)})}}),
                  dict({{text("betas"), tuple({real(0.9), real(0.95)})}})) == "changed betas.1: 0.99 -> 0.95\n");
    CHECK(pickles(list({integer(1)}), list({integer(1), integer(2)})) == "added 1:  -> 2\n");
    CHECK(pickles(dict({{integer(1), text("a")}, {text("1"), text("b")}}),
                  dict({{integer(1), text("a")}, {text("1"), text("c")}})) == "changed 1: 'b' -> 'c'\n");
  }

  TEST_CASE("objects are compared by their attributes and arguments") {
    const std::string space = global("argparse", "Namespace");
    CHECK(pickles(dict({{text("args"), instance(space, dict({{text("wd"), real(0.1)}}))}}),
                  dict({{text("args"), instance(space, dict({{text("wd"), real(0.2)}}))}})) ==
          "changed args.wd: 0.1 -> 0.2\n");
    CHECK(pickles(dict({{text("p"), call(global("pathlib", "PosixPath"), tuple({text("a")}))}}),
                  dict({{text("p"), call(global("pathlib", "PosixPath"), tuple({text("b")}))}})) ==
          "changed p: PosixPath('a') -> PosixPath('b')\n");
    const std::string type = call(global("numpy", "dtype"), tuple({text("f8"), "\x89", "\x88"}));
    const auto scalar = [&](double value) {
      return call(global("numpy.core.multiarray", "scalar"),
                  tuple({type, "C\x08" + little(std::bit_cast<std::uint64_t>(value), 8)}));
    };
    CHECK(pickles(dict({{text("loss"), scalar(2.5)}}), dict({{text("loss"), scalar(2.25)}})) ==
          "changed loss: 2.5 -> 2.25\n");
    CHECK(pickles(dict({{text("loss"), scalar(2.5)}}), dict({{text("loss"), scalar(2.5)}, {text("x"), "N"}})) ==
          "added x:  -> None\n");
  }

  TEST_CASE("a value of another kind is one difference, and so is a long list of numbers") {
    CHECK(pickles(dict({{text("x"), integer(1)}}), dict({{text("x"), list({integer(1)})}})) == "changed x: 1 -> [1]\n");
    CHECK(pickles(dict({{text("x"), tuple({integer(1)})}}), dict({{text("x"), list({integer(1)})}})) ==
          "changed x: tuple [1] -> list [1]\n");
    std::string a = "](";
    std::string b = "](";
    for (std::uint32_t i = 0; i < 600; ++i) {
      a += integer(i);
      b += integer(i + 1);
    }
    CHECK(pickles(dict({{text("rng"), a + "e"}}), dict({{text("rng"), b + "e"}})) ==
          "changed rng: list of 600: [0, 1, 2, 3, 4, 5, ...] -> list of 600: [1, 2, 3, 4, 5, 6, ...]\n");
  }

  TEST_CASE("tensors are told of once, and of the rest of them what isn't a value") {
    const std::string grad = call(
        utils("_rebuild_tensor_v2"),
        tuple({storage("FloatStorage", "0", 10), integer(0), tuple({integer(10)}), tuple({integer(1)}), "\x88", "}"}));
    CHECK(pickles(dict({{text("w"), floats("0", 10)}}), dict({{text("w"), grad}})) ==
          "changed w.requires_grad: False -> True\n");
    const unit_test::Scratch scratch;
    write_file(scratch / "a.pt", archive(dict({{text("w"), floats("0", 10)}}), {{"0", std::string(40, 'a')}}));
    write_file(scratch / "b.pt",
               archive(dict({{text("m"), dict({{text("v"), floats("0", 10)}})}}), {{"0", std::string(40, 'a')}}));
    const DiffReport report = compare(scratch / "a.pt", scratch / "b.pt");
    CHECK(values_of(report).empty());
    CHECK(find(report, "w").change == Change::removed);
    CHECK(find(report, "m.v").change == Change::added);
    // Its storage is then a record that nothing looks into.
    CHECK(pickles(dict({{text("w"), floats("0", 10)}}), dict({{text("w"), integer(3)}})) ==
          "changed w: (a tensor) -> 3\nadded data/0:  -> record of 40 bytes\n");
  }

  TEST_CASE("cycles and shared containers are looked into once") {
    // d = {"n": number}; d["self"] = d
    const auto cycle = [](std::uint32_t number) {
      return "}q\x01(" + text("n") + integer(number) + text("self") + "h\x01u";
    };
    CHECK(pickles(cycle(1), cycle(2)) == "changed n: 1 -> 2\n");
    // Each list holds the one before it twice: as a tree it has 2^40 leaves.
    const auto doubled = [](std::uint32_t number) {
      std::string out = list({integer(number)}) + "q\x01";
      for (int i = 0; i < 40; ++i)
        out +=
            "0](h\x01h\x01"
            "eq\x01";
      return out;
    };
    CHECK(pickles(doubled(1), doubled(2)).find("1 -> 2") != std::string::npos);
    std::string deep_a;
    std::string deep_b;
    for (int i = 0; i < 4000; ++i) deep_a += "](";
    deep_b = deep_a + integer(2);
    deep_a += integer(1);
    for (int i = 0; i < 4000; ++i) {
      deep_a += "e";
      deep_b += "e";
    }
    CHECK(pickles(deep_a, deep_b).find("1 -> 2") != std::string::npos);
  }

  TEST_CASE("JSON is compared by value, and what isn't JSON by its bytes") {
    CHECK(jsons(R"({"a": 1, "b": [1, {"c": "x"}]})", R"({"b":[1,{"c":"y"}],"a":1})") ==
          "changed b.1.c: \"x\" -> \"y\"\n");
    CHECK(jsons("{\"a\": 1}", "{ \"a\" : 1 }\n").empty());
    CHECK(jsons("{}", R"({"k": null})") == "added k:  -> null\n");
    CHECK(jsons(R"({"loss": 2.5, "t": "a\"NaN"})", R"({"loss": NaN, "t": "a\"NaN"})") ==
          "changed loss: 2.5 -> \"NaN\"\n");
    CHECK(jsons(R"([-Infinity, 1])", R"([-Infinity, Infinity])") == "changed 1: 1 -> \"Infinity\"\n");
    CHECK(jsons("{oops", "{oopz") == "changed state.json -> state.json 1\n");
    CHECK(jsons(std::string(100'000, '['), std::string(100'001, '[')) == "changed state.json -> state.json 1\n");
    CHECK(jsons(std::string(50'000, '[') + "1" + std::string(50'000, ']'),
                std::string(50'000, '[') + "2" + std::string(50'000, ']'))
              .ends_with("0: 1 -> 2\n"));
  }

  TEST_CASE("the metadata of safetensors are values") {
    const unit_test::Scratch scratch;
    const auto file = [&](const std::string& name, const std::string& note) {
      const std::string header =
          R"({"__metadata__":{"note":")" + note + R"("},"t":{"dtype":"U8","shape":[1],)" + R"("data_offsets":[0,1]}})";
      write_file(scratch / name, little(header.size(), 8) + header + "x");
      return scratch / name;
    };
    CHECK(values_of(compare(file("a.safetensors", "one"), file("b.safetensors", "two"))) ==
          "changed __metadata__.note: \"one\" -> \"two\"\n");
  }

  TEST_CASE("records of an archive that no parser looks into are compared by their sums") {
    const unit_test::Scratch scratch;
    const auto file = [&](const std::string& name, const std::string& code) {
      Zip zip;
      zip.add("m/data.pkl", pickle(dict({})));
      zip.add("m/code/net.py", code);
      zip.add("m/version", name);
      write_file(scratch / name, zip.finish());
      return scratch / name;
    };
    CHECK(compare(file("a.pt", "pass"), file("b.pt", "pass")).same());
    const std::string values = values_of(compare(file("a.pt", "pass"), file("b.pt", "fail")));
    CHECK(values.starts_with("changed code/net.py: record of 4 bytes, xxh128 "));
  }

  TEST_CASE("opaque files are compared by their bytes, and short ones shown") {
    const unit_test::Scratch scratch;
    write_file(scratch / "a/latest", "step_5\n");
    write_file(scratch / "b/latest", "step_10\n");
    write_file(scratch / "a/large", std::string(9'000'000, 'x'));
    std::string other(9'000'000, 'x');
    other[0] = 'y';
    other[8'999'999] = 'y';
    write_file(scratch / "b/large", other + "tail");
    const DiffReport report = compare(scratch / "a", scratch / "b");
    CHECK(files_of(report) == "changed large -> large 6\nchanged latest -> latest 3\n");
    CHECK(report.files[1].old_value == "step_5");
    CHECK(report.files[1].new_value == "step_10");
    CHECK(report.files[0].old_value.empty());
  }

  TEST_CASE("the training state of the next step differs in its tensors, epoch and learning rate") {
    const DiffReport report =
        compare(source_test::fixture_path("train_step5.pt"), source_test::fixture_path("train_step6.pt"));
    const std::string values = values_of(report);
    CHECK(values.starts_with("changed epoch: 5 -> 6\nchanged optimizer_state_dict.param_groups.0.lr: 0.00099"));
    CHECK(report.files.empty());
    CHECK(find(report, "optimizer_state_dict.state.0.step").numbers->max_abs == 1);
  }

  TEST_CASE("values of distributed checkpoints are compared, and where things lie in them isn't") {
    const unit_test::Scratch scratch;
    std::filesystem::create_directories(scratch / "a");
    std::filesystem::copy(source_test::fixture_path("dcp"), scratch / "a", std::filesystem::copy_options::recursive);
    CHECK(compare(scratch / "a", source_test::fixture_path("dcp")).same());
  }
}
