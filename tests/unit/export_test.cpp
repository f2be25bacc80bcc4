// SPDX-License-Identifier: Apache-2.0
// Exports: PyTorch's own bytes for every fixture, and each format read again by another reader.
#include "core/digest.hpp"
#include "export_support.hpp"
#include "test_sha256.hpp"

#include <doctest/doctest.h>

#include <fcntl.h>
#include <unistd.h>
#include <array>
#include <cstdlib>

using namespace ckpt;
using namespace export_test;

namespace {

const std::string eight_floats(
    "\x00\x00\x80\x3f\x00\x00\x00\x40\x00\x00\x40\x40\x00\x00\x80\x40"
    "\x00\x00\xa0\x40\x00\x00\xc0\x40\x00\x00\xe0\x40\x00\x00\x00\x41",
    32);

/// A store with one model file, and an output path beside it.
struct Model {
  Model() {
    write_file(scratch / "m.safetensors", safetensors_of({{"net.a", "F32", {2, 4}, eight_floats},
                                                          {"net.b", "I64", {}, std::string(8, '\x01')},
                                                          {"net.c", "BF16", {3}, std::string(6, '\x3f')},
                                                          {"net.d", "BOOL", {5}, std::string(5, '\x01')},
                                                          {"net.empty", "F32", {0, 4}, ""}}));
    save(store, {scratch / "m.safetensors"});
  }

  [[nodiscard]] ExportOptions options(std::vector<std::string> tensors, ExportFormat format) const {
    return options_for(store, std::move(tensors), format, output);
  }
  [[nodiscard]] Failure failure(std::vector<std::string> tensors, ExportFormat format) const {
    return failure_of([&] { (void)exported(options(std::move(tensors), format)); });
  }

  unit_test::Scratch scratch;
  std::string store = scratch / "store";
  std::string output = scratch / "out";
};

/// An export whose items hold zeros, however many.
class Zeros final : public source::Input {
 public:
  Zeros(const ops::ExportLayout& layout, const std::vector<ops::ExportItem>& items) {
    for (const ops::ExportSegment& segment : layout) {
      literals_[size_] = segment.literal;
      size_ += segment.literal.size();
      if (!segment.item) continue;
      begins_.push_back(size_);
      size_ += items[*segment.item].bytes;
    }
  }

  [[nodiscard]] std::uint64_t begin_of(std::size_t item) const { return begins_.at(item); }
  [[nodiscard]] std::uint64_t size() const override { return size_; }
  void read(std::uint64_t offset, std::span<std::byte> into) const override {
    std::fill(into.begin(), into.end(), std::byte{0});
    auto at = literals_.upper_bound(offset);
    if (at != literals_.begin()) --at;
    for (; at != literals_.end() && at->first < offset + into.size(); ++at) {
      const std::uint64_t begin = std::max(offset, at->first);
      const std::uint64_t end = std::min(offset + into.size(), at->first + at->second.size());
      if (begin >= end) continue;
      const ByteView there = as_bytes(at->second).subspan(begin - at->first, end - begin);
      std::copy(there.begin(), there.end(), into.begin() + static_cast<std::ptrdiff_t>(begin - offset));
    }
  }

 private:
  std::map<std::uint64_t, std::string> literals_;
  std::vector<std::uint64_t> begins_;
  std::uint64_t size_ = 0;
};

/// 0: it ran well; anything else: it didn't, or there's no numpy.
int numpy(const std::string& script) { return std::system(("python3 -c '" + script + "' 2>/dev/null").c_str()); }
bool have_numpy() { return numpy("import numpy") == 0; }

}  // namespace

TEST_SUITE("export") {
  TEST_CASE("the raw bytes of every tensor of every fixture are those that PyTorch sees") {
    const auto expected = nlohmann::json::parse(source_test::fixture("expected.json"));
    const unit_test::Scratch scratch;
    std::size_t checked = 0;
    std::uint64_t step = 0;
    for (const auto& item : expected.items()) {
      const std::string file = item.key();
      const auto& tensors = item.value();
      CAPTURE(file);
      const std::string store = scratch / "store";
      save(store, {source_test::fixture_path(file)}, ++step);
      for (const auto& want : tensors) {
        if (!want.at("sha256").is_string()) continue;
        const std::string name = want.at("name");
        CAPTURE(name);
        ExportOptions options = options_for(address_of(store, step), {name}, ExportFormat::raw, scratch / "out");
        CHECK(source_test::sha256_hex(exported(options)) == want.at("sha256").get<std::string>());
        ++checked;
      }
    }
    CHECK(checked >= 200);
  }

  TEST_CASE("safetensors come out aligned, and the parser of the project finds every tensor in them") {
    const Model model;
    ExportOptions options = model.options({"*"}, ExportFormat::safetensors);
    options.strip_prefix = "net.";
    const std::string file = exported(options);
    const source::Parsed parsed = source_test::parse_bytes("out.safetensors", file);
    CHECK(parsed.malformed == "");
    CHECK(source_test::broken_promise(parsed, file.size()) == "");
    REQUIRE(parsed.tensors.size() == 5);
    for (const Tensor& tensor : parsed.tensors) {
      CAPTURE(tensor.name);
      CHECK(tensor.offset % (bits_of(tensor.dtype) / 8) == 0);
      CHECK(source_test::contiguous(tensor, file) ==
            exported(model.options({"net." + tensor.name}, ExportFormat::raw)));
    }
    CHECK(source_test::find(parsed, "a")->shape == std::vector<std::int64_t>{2, 4});
    CHECK(source_test::find(parsed, "empty")->shape == std::vector<std::int64_t>{0, 4});
    CHECK(load_le<std::uint64_t>(as_bytes(file).data()) % 8 == 0);
    CHECK(nlohmann::json::parse(
              file.substr(8, load_le<std::uint64_t>(as_bytes(file).data())))["__metadata__"]["format"] == "pt");
  }

  TEST_CASE("strided views of a torch file are contiguous in safetensors") {
    const unit_test::Scratch scratch;
    save(scratch / "store", {source_test::fixture_path("aliases.pt")});
    const std::string file =
        exported(options_for(scratch / "store", {"*"}, ExportFormat::safetensors, scratch / "out"));
    const source::Parsed parsed = source_test::parse_bytes("out.safetensors", file);
    const auto expected = nlohmann::json::parse(source_test::fixture("expected.json")).at("aliases.pt");
    for (const auto& want : expected) {
      const Tensor* const tensor = source_test::find(parsed, want.at("name").get<std::string>());
      REQUIRE(tensor != nullptr);
      CHECK(is_contiguous(*tensor));
      CHECK(source_test::sha256_hex(source_test::contiguous(*tensor, file)) == want.at("sha256").get<std::string>());
    }
  }

  TEST_CASE("a pt file is read back by the parser, strided views and every type of it") {
    for (const char* fixture : {"aliases.pt", "dtypes.pt", "train_step6.pt"}) {
      CAPTURE(fixture);
      const unit_test::Scratch scratch;
      save(scratch / "store", {source_test::fixture_path(fixture)});
      const std::string file = exported(options_for(scratch / "store", {"*"}, ExportFormat::pt, scratch / "out"));
      const source::Parsed parsed = source_test::parse_bytes("out.pt", file);
      CHECK(parsed.malformed == "");
      CHECK(source_test::broken_promise(parsed, file.size()) == "");
      const auto expected = nlohmann::json::parse(source_test::fixture("expected.json")).at(fixture);
      CHECK(parsed.tensors.size() == expected.size());
      for (const auto& want : expected) {
        const Tensor* const tensor = source_test::find(parsed, want.at("name").get<std::string>());
        REQUIRE(tensor != nullptr);
        CHECK(name_of(tensor->dtype) == want.at("dtype").get<std::string>());
        CHECK(tensor->shape == want.at("shape").get<std::vector<std::int64_t>>());
        if (tensor->offset > 0) CHECK(tensor->offset % 64 == 0);
        CHECK(source_test::sha256_hex(source_test::contiguous(*tensor, file)) == want.at("sha256").get<std::string>());
      }
    }
  }

  TEST_CASE("a pt file of more than 4 GiB, and of more than 65,535 tensors, is laid out as zip64") {
    const auto item = [](std::string name, std::int64_t count) {
      return ops::ExportItem{.path = "s.pt",
                             .tensor = {.name = name, .dtype = DType::int8, .shape = {count}, .strides = {1}},
                             .name = name,
                             .bytes = static_cast<std::uint64_t>(count)};
    };
    std::vector<ops::ExportItem> large = {item("small", 3), item("large", std::int64_t{5} << 30U), item("after", 7)};
    std::vector<ops::ExportItem> many;
    for (int i = 0; i < 66'000; ++i) many.push_back(item("t" + std::to_string(i), 1));
    for (const auto& items : {large, many}) {
      const Zeros file(ops::lay_out_pt(items), items);
      const source::Parsed parsed = source::parse("out.pt", file, source_test::MemorySiblings());
      REQUIRE(parsed.malformed == "");
      REQUIRE(parsed.tensors.size() == items.size());
      for (std::size_t i = 0; i < items.size(); ++i) {
        if (parsed.tensors[i].name != items[i].name || parsed.tensors[i].offset != file.begin_of(i)) {
          FAIL_CHECK("'" << items[i].name << "' isn't in its place");
        }
      }
    }
  }

  TEST_CASE("an npy file is read back by the parser, padded to 64 bytes") {
    const Model model;
    const std::string file = exported(model.options({"net.a"}, ExportFormat::npy));
    const source::Parsed parsed = source_test::parse_bytes("out.npy", file);
    REQUIRE(parsed.tensors.size() == 1);
    CHECK(parsed.tensors[0].dtype == DType::float32);
    CHECK(parsed.tensors[0].shape == std::vector<std::int64_t>{2, 4});
    CHECK(parsed.tensors[0].offset % 64 == 0);
    CHECK(source_test::contiguous(parsed.tensors[0], file) == eight_floats);
    const source::Parsed scalar =
        source_test::parse_bytes("out.npy", exported(model.options({"net.b"}, ExportFormat::npy)));
    CHECK(scalar.tensors.at(0).shape.empty());
  }

  TEST_CASE("numpy reads what is exported, from npy and from tar") {
    if (!have_numpy()) {
      MESSAGE("skipped: no numpy");
      return;
    }
    const Model model;
    (void)exported(model.options({"net.a"}, ExportFormat::npy));
    CHECK(numpy("import numpy as n; a = n.load(\"" + model.output +
                "\"); assert a.dtype == n.float32 and a.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]") == 0);
    (void)exported(model.options({"net.a", "net.b", "net.d", "net.empty"}, ExportFormat::tar));
    CHECK(numpy("import io, tarfile, numpy as n; t = tarfile.open(\"" + model.output +
                "\"); a = {m.name: n.load(io.BytesIO(t.extractfile(m).read())) for m in t}; "
                "assert sorted(a) == [\"net.a.npy\", \"net.b.npy\", \"net.d.npy\", \"net.empty.npy\"]; "
                "assert a[\"net.d.npy\"].all() and a[\"net.empty.npy\"].shape == (0, 4)") == 0);
  }

  TEST_CASE("long, odd and climbing names survive in a tar and stay below where it is unpacked") {
    const unit_test::Scratch scratch;
    const std::string text(150, 'x');
    write_file(scratch / "m.safetensors", safetensors_of({{text, "U8", {1}, "1"},
                                                          {"new\nline \xc3\xa4", "U8", {1}, "2"},
                                                          {"../../up", "U8", {1}, "3"},
                                                          {"dir/leaf", "U8", {1}, "4"}}));
    save(scratch / "store", {scratch / "m.safetensors"});
    (void)exported(options_for(scratch / "store", {"*"}, ExportFormat::tar, scratch / "out.tar"));
    std::filesystem::create_directory(scratch / "into");
    REQUIRE(std::system(("tar -xf '" + (scratch / "out.tar") + "' -C '" + (scratch / "into") + "'").c_str()) == 0);
    const auto last = [&](const std::string& name) {
      const std::string file = source_test::read_file(scratch / "into/" + name);
      return file.substr(file.size() - 1);
    };
    CHECK(last(text + ".npy") == "1");
    CHECK(last("new\nline \xc3\xa4.npy") == "2");
    CHECK(last("..%2F..%2Fup.npy") == "3");
    CHECK(last("dir/leaf.npy") == "4");
  }

  TEST_CASE("a type that the format has no name for is refused by tensor and type") {
    const Model model;
    const Failure npy = model.failure({"net.c"}, ExportFormat::npy);
    CHECK(npy.code == Errc::unsupported);
    CHECK(mentions(npy, "net.c"));
    CHECK(mentions(npy, "bfloat16"));
    CHECK(model.failure({"*"}, ExportFormat::tar).code == Errc::unsupported);
    CHECK_FALSE(std::filesystem::exists(model.output));
  }

  TEST_CASE("what nothing matches is named") {
    const Model model;
    const Failure tensor = model.failure({"net.*", "nowhere*"}, ExportFormat::safetensors);
    CHECK(tensor.code == Errc::not_found);
    CHECK(mentions(tensor, "nowhere*"));
    ExportOptions options = model.options({"*"}, ExportFormat::safetensors);
    options.select.files = {"other.pt"};
    const Failure file = failure_of([&] { (void)exported(options); });
    CHECK(file.code == Errc::not_found);
    CHECK(mentions(file, "other.pt"));
    options.select.files.clear();
    options.select.rank = 1;
    CHECK(failure_of([&] { (void)exported(options); }).code == Errc::not_found);
  }

  TEST_CASE("two tensors in a format for one are an error and nothing is left") {
    const Model model;
    CHECK(model.failure({"net.*"}, ExportFormat::raw).code == Errc::invalid_argument);
    CHECK(model.failure({"net.*"}, ExportFormat::npy).code == Errc::invalid_argument);
    CHECK_FALSE(std::filesystem::exists(model.output));
    for (const auto& entry : std::filesystem::directory_iterator(model.scratch.path())) {
      CHECK_FALSE(entry.path().filename().string().starts_with(".ckpt"));
    }
  }

  TEST_CASE("an output that is there stays without force and is replaced with it") {
    const Model model;
    write_file(model.output, "mine");
    ExportOptions options = model.options({"net.a"}, ExportFormat::raw);
    options.force = false;
    CHECK(failure_of([&] { (void)exported(options); }).code == Errc::exists);
    CHECK(source_test::read_file(model.output) == "mine");
    options.force = true;
    CHECK(exported(options) == eight_floats);
    options.output = model.scratch.path();
    CHECK(failure_of([&] { (void)exported(options); }).code == Errc::exists);
  }

  TEST_CASE("a descriptor gets the same bytes as a file and stays open") {
    const Model model;
    const std::string want = exported(model.options({"*"}, ExportFormat::safetensors));
    ExportOptions options = model.options({"*"}, ExportFormat::safetensors);
    const std::string path = model.scratch / "stream";
    options.output.clear();
    options.output_fd = ::open(path.c_str(), O_WRONLY | O_CREAT, 0600);
    Monitor monitor;
    CHECK(export_tensors(options, monitor).tensors == 5);
    CHECK(::close(*options.output_fd) == 0);
    CHECK(source_test::read_file(path) == want);
  }

  TEST_CASE("replicas of several ranks are exported once, and differing ones only by rank") {
    const unit_test::Scratch scratch;
    const std::string store = scratch / "store";
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      const std::string own(4, static_cast<char>(rank + 1));
      // The headers differ in length, so the same bytes stand at other places.
      write_file(scratch / "r" + std::to_string(rank) + "/m.safetensors",
                 safetensors_of({{"same", "F32", {8}, eight_floats},
                                 {"own", "U8", {4}, own},
                                 {"of" + std::string(rank, 'x'), "U8", {1}, "1"}}));
      save(store, {scratch / "r" + std::to_string(rank)}, 1, rank, 2);
    }
    CHECK(exported(options_for(store, {"same"}, ExportFormat::raw, scratch / "out")) == eight_floats);
    const auto all = options_for(store, {"*"}, ExportFormat::safetensors, scratch / "all");
    const Failure clash = failure_of([&] { (void)exported(all); });
    CHECK(clash.code == Errc::invalid_argument);
    CHECK(mentions(clash, "own"));
    ExportOptions one = options_for(store, {"own"}, ExportFormat::raw, scratch / "out");
    one.select.rank = 1;
    CHECK(exported(one) == std::string(4, '\x02'));
  }

  TEST_CASE("two files with one tensor name clash unless a file is chosen") {
    const unit_test::Scratch scratch;
    write_file(scratch / "d/a.safetensors", safetensors_of({{"w", "U8", {2}, "ab"}}));
    write_file(scratch / "d/b.safetensors", safetensors_of({{"w", "U8", {2}, "cd"}}));
    save(scratch / "store", {scratch / "d"});
    ExportOptions options = options_for(scratch / "store", {"w"}, ExportFormat::raw, scratch / "out");
    CHECK(failure_of([&] { (void)exported(options); }).code == Errc::invalid_argument);
    options.select.files = {"b*"};
    CHECK(exported(options) == "cd");
  }

  TEST_CASE("names that clash once their prefix is gone are refused, and so is one that is nothing but the prefix") {
    const unit_test::Scratch scratch;
    write_file(scratch / "m.safetensors", safetensors_of({{"x.w", "U8", {1}, "a"}, {"w", "U8", {1}, "b"}}));
    save(scratch / "store", {scratch / "m.safetensors"});
    ExportOptions options = options_for(scratch / "store", {"*"}, ExportFormat::safetensors, scratch / "out");
    options.strip_prefix = "x.";
    CHECK(failure_of([&] { (void)exported(options); }).code == Errc::invalid_argument);
    options.strip_prefix = "w";
    CHECK(failure_of([&] { (void)exported(options); }).code == Errc::invalid_argument);
  }

  TEST_CASE("tensors without bytes are refused, and sparse ones come out by their parts") {
    const unit_test::Scratch scratch;
    save(scratch / "store", {source_test::fixture_path("odd.pt")}, 1);
    save(scratch / "store", {source_test::fixture_path("exotic.pt")}, 2);
    Monitor monitor;
    std::string meta;
    for (const TensorListing& each : list_tensors({.from = parse_address((scratch / "store") + "@1")}, monitor)) {
      if (each.meta && each.layout == "strided") meta = each.name;
    }
    REQUIRE(meta != "");
    const Failure failure = failure_of(
        [&] { (void)exported(options_for((scratch / "store") + "@1", {meta}, ExportFormat::raw, scratch / "out")); });
    CHECK(failure.code == Errc::unsupported);
    CHECK(mentions(failure, meta));

    std::string sparse;
    for (const TensorListing& each : list_tensors({.from = parse_address((scratch / "store") + "@2")}, monitor)) {
      if (each.layout == "sparse_coo") sparse = each.name;
    }
    REQUIRE(sparse != "");
    const auto whole = options_for((scratch / "store") + "@2", {sparse}, ExportFormat::safetensors, scratch / "out");
    CHECK(failure_of([&] { (void)exported(whole); }).code == Errc::unsupported);
    const auto parts =
        options_for((scratch / "store") + "@2", {sparse, sparse + ".*"}, ExportFormat::safetensors, scratch / "out");
    const source::Parsed parsed = source_test::parse_bytes("out.safetensors", exported(parts));
    CHECK(source_test::find(parsed, sparse + ".indices") != nullptr);
    CHECK(source_test::find(parsed, sparse + ".values") != nullptr);
    CHECK(source_test::find(parsed, sparse) == nullptr);
  }

  TEST_CASE("an interrupted export leaves nothing behind") {
    struct Stopped final : Monitor {
      [[nodiscard]] bool stop_requested() const override { return true; }
    };
    const Model model;
    Stopped monitor;
    const auto options = model.options({"net.a"}, ExportFormat::raw);
    CHECK(failure_of([&] { (void)export_tensors(options, monitor); }).code == Errc::interrupted);
    CHECK_FALSE(std::filesystem::exists(model.output));
  }
}
