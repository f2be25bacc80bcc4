// SPDX-License-Identifier: Apache-2.0
// Pickles of flat states: read again by the project's own parser, and by PyTorch where it's there.
#include "source/torch_pickle_writer.hpp"
#include "export_support.hpp"
#include "torch_writer.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <deque>

using namespace ckpt;
using export_test::failure_of;
using export_test::mentions;
using source::pickle_of;
using source::PickledTensor;

namespace {

using Numbers = std::vector<std::int64_t>;

/// Tensors and what they view, in one place.
class State {
 public:
  void add(std::string name, DType dtype, const std::string& key, std::uint64_t bytes, Numbers shape, Numbers strides,
           std::uint64_t offset = 0) {
    Owned& owned = owned_.emplace_back(Owned{std::move(name), key, std::move(shape), std::move(strides)});
    tensors.push_back({.name = owned.name,
                       .dtype = dtype,
                       .storage_key = owned.key,
                       .storage_bytes = bytes,
                       .offset = offset,
                       .shape = owned.shape,
                       .strides = owned.strides});
    if (!storages_.contains(key)) {
      std::string& content = storages_[key];
      for (std::uint64_t i = 0; i < bytes; ++i) content += static_cast<char>(i % 2);
    }
  }

  [[nodiscard]] std::string archive() const {
    torch_writer::Zip zip;
    zip.add("archive/data.pkl", pickle_of(tensors));
    for (const auto& [key, content] : storages_) zip.add("archive/data/" + key, content);
    zip.add("archive/version", "3\n");
    return zip.finish();
  }

  std::vector<PickledTensor> tensors;

 private:
  struct Owned {
    std::string name, key;
    Numbers shape, strides;
  };
  std::deque<Owned> owned_;
  std::map<std::string, std::string> storages_;
};

void check_parsed(const State& state) {
  const source::Parsed parsed = source_test::parse_bytes("state.pt", state.archive());
  REQUIRE(parsed.malformed == "");
  CHECK(parsed.note == "");
  REQUIRE(parsed.tensors.size() == state.tensors.size());
  for (std::size_t i = 0; i < parsed.tensors.size(); ++i) {
    const Tensor& got = parsed.tensors[i];
    const PickledTensor& want = state.tensors[i];
    CAPTURE(got.name);
    CHECK(got.name == want.name);
    CHECK(got.dtype == want.dtype);
    CHECK(got.shape == Numbers(want.shape.begin(), want.shape.end()));
    CHECK(got.strides == Numbers(want.strides.begin(), want.strides.end()));
  }
}

}  // namespace

TEST_SUITE("torch pickle writer") {
  TEST_CASE("every type that PyTorch has plain tensors of is read again as it was") {
    State state;
    for (std::uint8_t n = 0; n < dtype_count; ++n) {
      const auto dtype = static_cast<DType>(n);
      if (!source::can_be_pickled(dtype)) continue;
      state.add(std::string(name_of(dtype)), dtype, std::to_string(n), 6 * (bits_of(dtype) / 8), {2, 3}, {3, 1});
    }
    CHECK(state.tensors.size() > 25);
    check_parsed(state);
  }

  TEST_CASE("views, scalars, empty tensors, many dimensions and large numbers are read again as they were") {
    State state;
    state.add("transposed", DType::float32, "0", 48, {3, 4}, {1, 3});
    state.add("slice", DType::float32, "0", 48, {2}, {3}, 7);
    state.add("scalar", DType::int64, "1", 8, {}, {});
    state.add("empty", DType::float64, "2", 0, {0, 70000, 300}, {21000000, 300, 1});
    state.add("deep", DType::uint8, "3", 16, {2, 1, 2, 1, 4}, {8, 8, 4, 4, 1});
    state.add("expanded", DType::uint8, "3", 16, {std::int64_t{1} << 40U}, {0});
    state.add("wide", DType::uint8, "3", 16, {0, (std::int64_t{1} << 31U)}, {(std::int64_t{1} << 31U), 1});
    state.add("widest", DType::uint8, "3", 16, {0}, {INT64_MAX});
    state.add("name with 'quotes'\nand \xc3\xbc", DType::boolean, "4", 1, {1}, {1});
    check_parsed(state);
  }

  TEST_CASE("a storage with views of several types, or of an odd size, is untyped") {
    State state;
    state.add("floats", DType::float32, "0", 8, {2}, {1});
    state.add("shorts", DType::int16, "0", 8, {3}, {1}, 1);
    state.add("padded", DType::float32, "1", 7, {1}, {1});
    state.add("plain", DType::float32, "2", 8, {2}, {1});
    check_parsed(state);
    CHECK(pickle_of(state.tensors).find("torch.storage\nUntypedStorage") != std::string::npos);
    CHECK(pickle_of(std::span(state.tensors).last(1)).find("UntypedStorage") == std::string::npos);
  }

  TEST_CASE("thousands of tensors, and none") {
    State state;
    check_parsed(state);
    for (int i = 0; i < 2500; ++i)
      state.add("layer." + std::to_string(i), DType::bfloat16, std::to_string(i), 4, {2}, {1});
    check_parsed(state);
  }

  TEST_CASE("what a pickle can't say is refused by name") {
    State quantised;
    quantised.add("q", DType::qint8, "0", 1, {1}, {1});
    CHECK(mentions(failure_of([&] { (void)pickle_of(quantised.tensors); }), "tensor 'q' is of type qint8"));
    State named;
    named.add("\xff", DType::int8, "0", 1, {1}, {1});
    CHECK(failure_of([&] { (void)pickle_of(named.tensors); }).code == Errc::unsupported);
  }

  TEST_CASE("torch.load reads it") {
    const auto python = [](const std::string& script) {
      return std::system(("/usr/bin/python3 -c '" + script + "' 2>/dev/null").c_str()) == 0;
    };
    if (!python("import torch")) {
      MESSAGE("skipped: no PyTorch here");
      return;
    }
    State state;
    state.add("f", DType::bfloat16, "0", 24, {3, 4}, {1, 3});
    state.add("slice", DType::bfloat16, "0", 24, {2}, {3}, 7);
    state.add("scalar", DType::complex64, "1", 8, {}, {});
    state.add("empty", DType::boolean, "2", 0, {0, 3}, {3, 1});
    state.add("far", DType::int64, "3", 80000, {5000}, {2});
    const unit_test::Scratch scratch;
    export_test::write_file(scratch / "state.pt", state.archive());
    CHECK(python("import torch\ns = torch.load(\"" + scratch / "state.pt" +
                 "\")\nassert list(s) == [\"f\", \"slice\", \"scalar\", \"empty\", \"far\"]\n"
                 "assert s[\"f\"].dtype == torch.bfloat16 and s[\"f\"].stride() == (1, 3)\n"
                 "assert s[\"slice\"].data_ptr() == s[\"f\"].data_ptr() + 14\n"
                 "assert s[\"scalar\"].shape == () and s[\"empty\"].shape == (0, 3)\n"
                 "assert s[\"far\"][4999].item() == 0x0100010001000100\n"));
  }
}
