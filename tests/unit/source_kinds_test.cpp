// SPDX-License-Identifier: Apache-2.0
// What counts as which kind of file, and the small kinds' own rules.
#include "source_support.hpp"
#include "torch_writer.hpp"

#include <doctest/doctest.h>

using namespace ckpt;
using namespace source_test;
using torch_writer::little;

namespace {

source::Parsed safetensors(const std::string& header, std::size_t buffer) {
  const std::string bytes = little(header.size(), 8) + header + std::string(buffer, 'x');
  source::Parsed parsed = parse_bytes("m.safetensors", bytes);
  CHECK(broken_promise(parsed, bytes.size()) == "");
  return parsed;
}

source::Parsed npy(std::string header, std::size_t data) {
  header += '\n';
  const std::string bytes =
      "\x93NUMPY\x01" + std::string(1, '\0') + little(header.size(), 2) + header + std::string(data, 'x');
  source::Parsed parsed = parse_bytes("a.npy", bytes);
  CHECK(broken_promise(parsed, bytes.size()) == "");
  return parsed;
}

bool is_plain_opaque(const source::Parsed& parsed) {
  return parsed.kind == FileKind::opaque && parsed.malformed.empty() && parsed.note.empty();
}

}  // namespace

TEST_CASE("an empty file is malformed under a claiming name and opaque under another") {
  for (const char* name : {"a.pt", "a.pth", "a.ckpt", "a.bin", "a.safetensors", "a.distcp", "dir/A.PT"}) {
    CAPTURE(name);
    CHECK(parse_bytes(name, "").malformed != "");
  }
  for (const char* name : {"a.npy", "a.txt", "latest", ".metadata", "pt"}) {
    CAPTURE(name);
    CHECK(is_plain_opaque(parse_bytes(name, "")));
  }
}

TEST_CASE("a file that begins like no known kind is opaque without complaint, whatever its name") {
  for (const char* name : {"a.pt", "a.bin", "a.distcp", "a.safetensors", "a"}) {
    CAPTURE(name);
    CHECK(is_plain_opaque(parse_bytes(name, "version https://git-lfs.example/spec/v1\n")));
  }
}

TEST_CASE("a plain pickle named .bin is opaque") {
  CHECK(is_plain_opaque(parse_bytes("args.bin", torch_writer::pickle(torch_writer::text("hello")))));
}

TEST_CASE("the first bytes of a magic number alone are a file cut short") {
  for (const char* start : {"P", "PK", "PK\x03", "\x80", "\x80\x02", "\x80\x02\x8a\x0a\x6c\xfc"}) {
    CHECK(parse_bytes("a.pt", start).malformed != "");
    CHECK(is_plain_opaque(parse_bytes("a.txt", start)));
  }
}

TEST_CASE("a damaged file of another name is opaque with a note") {
  const source::Parsed parsed = parse_bytes("model.tar", "PK\x03\x04 and nothing more");
  CHECK(parsed.malformed == "");
  CHECK(parsed.note.find("cut short") != std::string::npos);
}

TEST_CASE("the old format is read under every pickle protocol's magic number") {
  const std::string whole = fixture("legacy_state.pth");
  CHECK(parse_bytes("x", whole).kind == FileKind::torch_legacy);
  // The same magic number as protocol 4 frames it.
  const std::string framed = "\x80\x04\x95" + little(13, 8) + whole.substr(2);
  CHECK(parse_bytes("x.pt", framed).kind == FileKind::torch_legacy);
}

TEST_CASE("safetensors offsets must tile the buffer exactly") {
  const std::string two =
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[1],"data_offsets":[8,9]}})";
  CHECK(names_of(safetensors(two, 9)) == std::vector<std::string>{"a", "b"});
  CHECK(safetensors(two, 8).malformed.find("cut short") != std::string::npos);
  CHECK(safetensors(two, 10).malformed.find("belong to no tensor") != std::string::npos);
  CHECK(safetensors(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2).malformed != "");
  CHECK(safetensors(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                    R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                    3)
            .malformed != "");
  CHECK(safetensors(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8).malformed != "");
}

TEST_CASE("safetensors sub-byte types fill whole bytes or are malformed") {
  const source::Parsed parsed = safetensors(R"({"a":{"dtype":"F4","shape":[3,4],"data_offsets":[0,6]}})", 6);
  REQUIRE(parsed.tensors.size() == 1);
  CHECK(parsed.tensors[0].dtype == DType::float4);
  CHECK(safetensors(R"({"a":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}})", 3).tensors.size() == 1);
  CHECK(safetensors(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2).malformed != "");
}

TEST_CASE("a safetensors type without a name here keeps its width") {
  const source::Parsed parsed = safetensors(R"({"a":{"dtype":"F16_NEW","shape":[3],"data_offsets":[0,6]}})", 6);
  REQUIRE(parsed.tensors.size() == 1);
  CHECK(parsed.tensors[0].dtype == DType::width16);
}

TEST_CASE("a safetensors header that isn't as it should be is malformed") {
  CHECK(safetensors("{", 0).malformed != "");
  CHECK(safetensors(R"({"a":[]})", 0).malformed != "");
  CHECK(safetensors(R"({"a":{"dtype":"U8","shape":[1]}})", 1).malformed != "");
  CHECK(safetensors(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1).malformed != "");
  CHECK(safetensors(R"({"__metadata__":{"a":1}})", 0).malformed != "");
  const source::Parsed padded = safetensors("{\"__metadata__\":{\"a\":\"b\"}}      ", 0);
  CHECK(padded.kind == FileKind::safetensors);
  CHECK(parse_bytes("m.safetensors", little(100'000'001, 8) + "{}").malformed.find("header") != std::string::npos);
}

TEST_CASE("npy: Fortran order is a matter of strides") {
  const source::Parsed parsed = npy("{'descr': '<f8', 'fortran_order': True, 'shape': (2, 3), }", 48);
  REQUIRE(parsed.tensors.size() == 1);
  CHECK(parsed.tensors[0].strides == std::vector<std::int64_t>{1, 2});
  CHECK(parsed.tensors[0].name == "(root)");
}

TEST_CASE("npy: big-endian arrays keep their width, with a note") {
  const source::Parsed parsed = npy("{'descr': '>i4', 'fortran_order': False, 'shape': (3,), }", 12);
  REQUIRE(parsed.tensors.size() == 1);
  CHECK(parsed.tensors[0].dtype == DType::width32);
  CHECK(parsed.note.find("big-endian") != std::string::npos);
}

TEST_CASE("npy: arrays of objects and records are left opaque, with a note") {
  for (const char* descr : {"'|O'", "[('a', '<f4'), ('b', '<i8')]", "'<U5'"}) {
    CAPTURE(descr);
    const source::Parsed parsed =
        npy("{'descr': " + std::string(descr) + ", 'fortran_order': False, 'shape': (1,), }", 24);
    CHECK(parsed.tensors.empty());
    CHECK(parsed.note != "");
    CHECK(parsed.malformed == "");
  }
}

TEST_CASE("npy: an array cut short is opaque with a note") {
  const source::Parsed parsed = npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }", 47);
  CHECK(parsed.kind == FileKind::opaque);
  CHECK(parsed.malformed == "");
  CHECK(parsed.note.find("cut short") != std::string::npos);
}

TEST_CASE("npz: stored members are arrays by their names and deflated ones are left, with a note") {
  const std::string array = fixture("array.npy");
  torch_writer::Zip zip;
  zip.add("w.npy", array);
  zip.add("z.npy", array, 8);
  const source::Parsed parsed = parse_bytes("x.npz", zip.finish());
  CHECK(parsed.kind == FileKind::npz);
  CHECK(names_of(parsed) == std::vector<std::string>{"w"});
  CHECK(parsed.note == "deflated entries are kept as they are");
}

TEST_CASE("dcp: a shard shorter than its metadata say is cut short") {
  MemorySiblings siblings;
  siblings.files["dcp/.metadata"] = fixture("dcp/.metadata");
  const std::string whole = fixture("dcp/__1_0.distcp");
  // The first items end where the second begins: a valid file, but not the one that the metadata describe.
  const source::Parsed parsed = parse_bytes("dcp/__1_0.distcp", whole.substr(0, 3030), siblings);
  CHECK(parsed.malformed.find("cut short") != std::string::npos);
}

TEST_CASE("dcp: metadata that can't be read leave the shard typed, with a note") {
  MemorySiblings siblings;
  siblings.files["dcp/.metadata"] = fixture("dcp/.metadata").substr(0, 700);
  const source::Parsed parsed = parse_bytes("dcp/__1_0.distcp", fixture("dcp/__1_0.distcp"), siblings);
  CHECK(parsed.kind == FileKind::distcp);
  CHECK(parsed.tensors.size() == 4);
  CHECK(parsed.note.find(".metadata") != std::string::npos);
}
