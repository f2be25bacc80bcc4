// SPDX-License-Identifier: Apache-2.0
// What PyTorch sees in the fixtures, the parsers see too; and what expected.json leaves out, spelled out here.
#include "slowness.hpp"
#include "source_support.hpp"
#include "test_sha256.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

using namespace ckpt;
using namespace source_test;

TEST_CASE("sha256 of the empty text and of abc are those of the standard") {
  CHECK(sha256_hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_CASE("every tensor of expected.json comes out with its name, dtype, shape, layout, digest and global place") {
  const auto expected = nlohmann::json::parse(fixture("expected.json"));
  REQUIRE(expected.size() >= 30);
  for (const auto& entry : expected.items()) {
    const std::string& file = entry.key();
    const auto& tensors = entry.value();
    CAPTURE(file);
    const std::string bytes = fixture(file);
    const source::Parsed parsed = parse_fixture(file);
    CHECK(parsed.malformed.empty());
    CHECK(parsed.note.empty());
    CHECK(parsed.kind != FileKind::opaque);
    for (const auto& want : tensors) {
      const std::string name = want.at("name");
      CAPTURE(name);
      const Tensor* const tensor = find(parsed, name);
      REQUIRE(tensor != nullptr);
      CHECK(name_of(tensor->dtype) == want.at("dtype").get<std::string>());
      if (want.contains("shape")) CHECK(tensor->shape == want.at("shape").get<std::vector<std::int64_t>>());
      if (want.contains("layout")) CHECK(name_of(tensor->layout) == want.at("layout").get<std::string>());
      if (want.at("sha256").is_string()) {
        CHECK(sha256_hex(contiguous(*tensor, bytes)) == want.at("sha256").get<std::string>());
      }
      if (!want.contains("global_shape")) continue;
      CHECK(tensor->global_shape == want.at("global_shape").get<std::vector<std::int64_t>>());
      CHECK(tensor->global_offsets == want.at("offsets").get<std::vector<std::int64_t>>());
    }
    // Beyond them there are only the parts of sparse tensors.
    for (const Tensor& tensor : parsed.tensors) {
      CAPTURE(tensor.name);
      const bool named =
          std::any_of(tensors.begin(), tensors.end(), [&](const auto& want) { return want.at("name") == tensor.name; });
      CHECK((named || file == "exotic.pt"));
    }
  }
}

TEST_CASE("every fixture keeps the promises of a parse and none is malformed") {
  for (const std::string& name : all_fixtures()) {
    CAPTURE(name);
    const source::Parsed parsed = parse_fixture(name);
    CHECK(parsed.malformed == "");
    CHECK(broken_promise(parsed, fixture(name).size()) == "");
  }
}

TEST_CASE("fixtures that expected.json leaves out have the tensors that they are there for") {
  using Names = std::vector<std::string>;
  CHECK(names_of(parse_fixture("cycle.pt")) == Names{"cycle.0", "s1.t"});
  CHECK(names_of(parse_fixture("names.pt")) == Names{"a.b", "a.b#2", "0", "0#2", "\"\"", "sp ace/\n"});
  CHECK(names_of(parse_fixture("subclass.pt")) == Names{"sub", "after"});
  CHECK(names_of(parse_fixture("script.pt")) == Names{"weight", "bias"});
  CHECK(names_of(parse_fixture("torch113_module.pt")) == Names{"_parameters.weight", "_parameters.bias"});
  CHECK(names_of(parse_fixture("array.npy")) == Names{"(root)"});
  CHECK(names_of(parse_fixture("arrays.npz")) == Names{"a", "b"});
  CHECK(parse_fixture("array.npy").kind == FileKind::npy);
  CHECK(parse_fixture("arrays.npz").kind == FileKind::npz);
  CHECK(parse_fixture("train_legacy.pth").kind == FileKind::torch_legacy);
  CHECK(parse_fixture("hf-checkpoint-500/config.json").kind == FileKind::opaque);

  const source::Parsed odd = parse_fixture("odd.pt");
  CHECK(names_of(odd) == Names{"m", "conj", "storage"});
  CHECK_FALSE(odd.tensors[0].has_bytes);
  CHECK(odd.tensors[1].conjugate);
  CHECK(odd.tensors[2].dtype == DType::uint8);
}

TEST_CASE("a deflated torch zip is kept as it is, with a note") {
  const source::Parsed parsed = parse_fixture("deflated.pt");
  CHECK(parsed.tensors.empty());
  CHECK(parsed.extents.empty());
  CHECK(parsed.note == "deflated entries are kept as they are");
}

TEST_CASE("dcp items take names, global shapes and offsets from the metadata, and are typed without it") {
  const source::Parsed with = parse_fixture("dcp/__1_0.distcp");
  CHECK(with.kind == FileKind::distcp);
  REQUIRE(names_of(with) == std::vector<std::string>{"model.fc.weight", "model.fc.bias", "model.emb", "plain"});
  CHECK(with.tensors[0].global_shape == std::vector<std::int64_t>{12, 8});
  CHECK(with.tensors[0].global_offsets == std::vector<std::int64_t>{6, 0});
  CHECK(with.tensors[2].global_offsets == std::vector<std::int64_t>{0, 3});

  const source::Parsed without = parse_bytes("dcp/__1_0.distcp", fixture("dcp/__1_0.distcp"));
  CHECK(without.kind == FileKind::distcp);
  CHECK(without.extents == with.extents);
  CHECK(without.tensors.size() == with.tensors.size());
  CHECK(parse_fixture("dcp/.metadata").kind == FileKind::dcp_metadata);

  // The shards together are the full tensor.
  const std::string rank0 = fixture("dcp/__0_0.distcp");
  const std::string rank1 = fixture("dcp/__1_0.distcp");
  const source::Parsed first = parse_fixture("dcp/__0_0.distcp");
  const source::Parsed full = parse_fixture("dcp-full.pt");
  CHECK(contiguous(first.tensors.at(0), rank0) + contiguous(with.tensors[0], rank1) ==
        contiguous(*find(full, "fc.weight"), fixture("dcp-full.pt")));
}

namespace {

/// With its metadata, without which a shard that ends between two items is whole.
source::Parsed parse_cut(const std::string& name, std::string bytes) {
  static const MemorySiblings siblings = [] {
    MemorySiblings made;
    made.files["dcp/.metadata"] = fixture("dcp/.metadata");
    return made;
  }();
  return parse_bytes(name, std::move(bytes), siblings);
}

}  // namespace

TEST_CASE("a file that claims its kind is malformed wherever it's cut short, and another is opaque") {
  for (const std::string& name : all_fixtures()) {
    const std::string whole = fixture(name);
    const std::string extension = std::filesystem::path(name).extension();
    const bool claims =
        std::string_view(".pt .pth .ckpt .bin .safetensors .distcp").find(extension) != std::string_view::npos &&
        !extension.empty();
    CAPTURE(name);
    const std::size_t step = whole.size() > 4096 ? 61 : 1;
    for (std::size_t size = 0; size < whole.size(); size += step * unit_test::slowness) {
      CAPTURE(size);
      const source::Parsed parsed = parse_cut(name, whole.substr(0, size));
      if (claims) {
        REQUIRE(parsed.malformed != "");
        REQUIRE(parsed.kind == FileKind::opaque);
      } else {
        REQUIRE(parsed.malformed == "");
      }
      const source::Parsed renamed = parse_bytes("file.unknown", whole.substr(0, size));
      REQUIRE(renamed.malformed == "");
      REQUIRE(broken_promise(renamed, size) == "");
    }
  }
}

TEST_CASE("no flipped byte makes a parser break its promises") {
  for (const std::string& name : all_fixtures()) {
    const std::string whole = fixture(name);
    CAPTURE(name);
    const std::size_t step = whole.size() > 4096 ? 37 : 3;
    for (std::size_t at = 0; at < whole.size(); at += step * unit_test::slowness) {
      CAPTURE(at);
      std::string flipped = whole;
      flipped[at] = static_cast<char>(flipped[at] ^ static_cast<char>(1 << (at % 8)));
      REQUIRE(broken_promise(parse_cut(name, flipped), flipped.size()) == "");
    }
  }
}
