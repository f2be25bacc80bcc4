// SPDX-License-Identifier: Apache-2.0
// Torch archives written by the test itself: each case is one thing that real files do, or that a hostile one might.
#include "source/pickle_reader.hpp"
#include "source/python_text.hpp"
#include "source_support.hpp"
#include "torch_writer.hpp"

#include <doctest/doctest.h>

using namespace ckpt;
using namespace source_test;
using namespace torch_writer;

namespace {

source::Parsed parse_object(const std::string& object,
                            std::initializer_list<std::pair<std::string, std::string>> records) {
  const std::string bytes = archive(object, records);
  source::Parsed parsed = parse_bytes("x.pt", bytes);
  CHECK(broken_promise(parsed, bytes.size()) == "");
  return parsed;
}

std::string key_text(const std::string& key) {
  const std::string bytes = pickle(key);
  const source::PickleResult result = source::read_pickle(as_bytes(bytes));
  REQUIRE(result.status == source::PickleStatus::complete);
  return source::python_str(result.pickle, result.pickle.root()).value_or("(too long)");
}

using Names = std::vector<std::string>;
const std::string eight(8, 'x');
const std::string tensor = floats("0", 2);

}  // namespace

TEST_CASE("the archive's prefix doesn't matter") {
  const source::Parsed parsed = parse_bytes("a.pt", archive(dict({{text("w"), tensor}}), {{"0", eight}}, "step-17"));
  REQUIRE(names_of(parsed) == Names{"w"});
  CHECK(parsed.extents.size() == 1);
}

TEST_CASE("more than 65,535 entries are all found") {
  Zip zip;
  zip.add("archive/data.pkl", pickle(dict({{text("last"), floats("69999", 2)}})));
  for (int i = 0; i < 70'000; ++i) zip.add("archive/data/" + std::to_string(i), eight);
  const source::Parsed parsed = parse_bytes("x.pt", zip.finish());
  CHECK(parsed.malformed == "");
  CHECK(names_of(parsed) == Names{"last"});
}

TEST_CASE("a deflated record among stored ones is left out, with a note") {
  Zip zip;
  zip.add("a/data.pkl", pickle(dict({{text("s"), tensor}, {text("d"), floats("1", 2)}})));
  zip.add("a/data/0", eight);
  zip.add("a/data/1", eight, 8);
  const source::Parsed parsed = parse_bytes("x.pt", zip.finish());
  CHECK(names_of(parsed) == Names{"s"});
  CHECK(parsed.note == "deflated entries are kept as they are");
}

TEST_CASE("a record that is missing or too small makes the file malformed") {
  CHECK(parse_object(dict({{text("w"), tensor}}), {}).malformed.find("missing") != std::string::npos);
  CHECK(parse_object(dict({{text("w"), tensor}}), {{"0", "1234567"}}).malformed.find("has 7 bytes") !=
        std::string::npos);
}

TEST_CASE("a view that reaches outside its storage makes the file malformed") {
  const std::string beyond = vector_on(storage("FloatStorage", "0", 2), 2, 1);
  CHECK(parse_object(dict({{text("w"), beyond}}), {{"0", eight}}).malformed.find("outside") != std::string::npos);
  const std::string huge = call(utils("_rebuild_tensor_v2"),
                                tuple({storage("FloatStorage", "0", 2), integer(0),
                                       tuple({integer(0x7fffffff), integer(0x7fffffff), integer(0x7fffffff)}),
                                       tuple({integer(0x7fffffff), integer(0x7fffffff), integer(1)}), "\x89", "}"}));
  CHECK(parse_object(dict({{text("w"), huge}}), {{"0", eight}}).malformed.find("outside") != std::string::npos);
}

TEST_CASE("a local header that isn't there makes the file malformed") {
  std::string bytes = archive(dict({{text("w"), tensor}}), {{"0", eight}});
  const std::size_t header = bytes.find("PK\x03\x04", 4);
  bytes[header] = 'Q';
  CHECK(parse_bytes("x.pt", bytes).malformed.find("no good header") != std::string::npos);
}

TEST_CASE("a zip without a torch pickle is opaque and no error") {
  Zip zip;
  zip.add("readme.txt", "hello");
  const source::Parsed parsed = parse_bytes("x.bin", zip.finish());
  CHECK(parsed.malformed == "");
  CHECK(parsed.kind == FileKind::opaque);
}

TEST_CASE("a shared tensor is listed at each place and a shared container once") {
  const std::string object = dict({{text("a"), tensor + "q\x01"},
                                   {text("b"), "h\x01"},
                                   {text("c"), "]q\x02"},
                                   {text("d"),
                                    "h\x02h\x01"
                                    "a"}});
  CHECK(names_of(parse_object(object, {{"0", eight}})) == Names{"a", "b", "c.0"});
}

TEST_CASE("one tensor a thousand times in a list is listed a thousand times") {
  std::string object = "](" + tensor + "q\x01";
  for (int i = 1; i < 1000; ++i) object += "h\x01";
  CHECK(parse_object(object + "e", {{"0", eight}}).tensors.size() == 1000);
}

TEST_CASE("a graph of 60 shared levels ends") {
  // Each level is a pair of the one below, made of two references.
  std::string pairs = "]q" + std::string(1, '\0') + tensor + "a";
  for (char level = 1; level <= 60; ++level) {
    const std::string below(1, static_cast<char>(level - 1));
    pairs += "](h" + below + "h" + below + "eq" + std::string(1, level);
  }
  const source::Parsed parsed = parse_object(pairs, {{"0", eight}});
  CHECK(parsed.tensors.size() == 1);
}

TEST_CASE("nesting beyond the limit makes the file opaque with a note, and is no error") {
  const source::Parsed parsed = parse_object(std::string(20'000, '(') + tensor, {{"0", eight}});
  CHECK(parsed.malformed == "");
  CHECK(parsed.kind == FileKind::opaque);
  CHECK(parsed.note.find("nested too deeply") != std::string::npos);
  std::string deep = "]" + tensor + "a";
  for (int i = 0; i < 12'000; ++i) deep = "]" + deep + "a";
  const source::Parsed lists = parse_object(deep, {{"0", eight}});
  CHECK(lists.malformed == "");
  CHECK(lists.kind == FileKind::opaque);
  CHECK(lists.note.find("16 KiB") != std::string::npos);
}

TEST_CASE("a sparse memo index makes the file opaque with a note") {
  const source::Parsed parsed = parse_object("}r" + little(0x7fffffff, 4), {});
  CHECK(parsed.kind == FileKind::opaque);
  CHECK(parsed.malformed == "");
  CHECK(parsed.note.find("memo") != std::string::npos);
}

TEST_CASE("bytes that are no pickle make a torch zip malformed") {
  CHECK(parse_object("\x01", {}).malformed.find("opcode") != std::string::npos);
  CHECK(parse_object("R", {}).malformed.find("stack") != std::string::npos);
}

TEST_CASE("the top object itself is (root)") {
  CHECK(names_of(parse_object(tensor, {{"0", eight}})) == Names{"(root)"});
}

TEST_CASE("keys that aren't texts are written as Python writes them") {
  CHECK(key_text("G" + std::string("\x3f\xb9\x99\x99\x99\x99\x99\x9a", 8)) == "0.1");
  CHECK(key_text("G" + std::string("\x43\x41\xc3\x79\x37\xe0\x80\x00", 8)) == "1e+16");
  CHECK(key_text("G" + std::string("\x40\x00\x00\x00\x00\x00\x00\x00", 8)) == "2.0");
  CHECK(key_text("N") == "None");
  CHECK(key_text("\x88") == "True");
  CHECK(key_text("J\xff\xff\xff\xff") == "-1");
  CHECK(key_text(tuple({integer(1), text("a'b"), "N"})) == "(1, \"a'b\", None)");
  CHECK(key_text(tuple({integer(1)})) == "(1,)");
  CHECK(key_text(")") == "()");
  CHECK(key_text("U\x01"
                 "a") == "a");
  CHECK(key_text("C\x02"
                 "a\xff") == "b'a\\xff'");
  CHECK(key_text("L1180591620717411303424L\n") == "1180591620717411303424");
  CHECK(key_text("L-1180591620717411303424L\n") == "-1180591620717411303424");
  CHECK(key_text(global("torch", "float32")) == "torch.float32");
}

TEST_CASE("the attributes of an unknown class and its arguments are looked into") {
  const std::string object = instance(global("nobody.knows", "Thing"), dict({{text("weight"), tensor}}));
  CHECK(names_of(parse_object(dict({{text("m"), object}}), {{"0", eight}})) == Names{"m.weight"});
  const std::string made = call(global("nobody.knows", "make"), tuple({integer(1), tensor}));
  CHECK(names_of(parse_object(dict({{text("m"), made}}), {{"0", eight}})) == Names{"m.1"});
}

TEST_CASE("an element type without a name here keeps its width") {
  const std::string v3 =
      call(utils("_rebuild_tensor_v3"), tuple({storage("UntypedStorage", "0", 8), integer(0), tuple({integer(4)}),
                                               tuple({integer(1)}), "\x89", "}", global("torch", "float99"), "}"}));
  const source::Parsed parsed = parse_object(v3, {{"0", eight}});
  REQUIRE(parsed.tensors.size() == 1);
  CHECK(parsed.tensors[0].dtype == DType::width16);
  const source::Parsed storage_class = parse_object(vector_on(storage("NovelStorage", "0", 2), 2), {{"0", eight}});
  REQUIRE(storage_class.tensors.size() == 1);
  CHECK(storage_class.tensors[0].dtype == DType::width32);
}

TEST_CASE("a big-endian archive keeps the widths of its elements, with a note") {
  Zip zip;
  zip.add("a/data.pkl", pickle(tensor));
  zip.add("a/byteorder", "big");
  zip.add("a/data/0", eight);
  const source::Parsed parsed = parse_bytes("x.pt", zip.finish());
  REQUIRE(parsed.tensors.size() == 1);
  CHECK(parsed.tensors[0].dtype == DType::width32);
  CHECK(parsed.note.find("big-endian") != std::string::npos);
}

TEST_CASE("a quantised tensor by channel has its scales and zero points as parts") {
  const std::string quantizer =
      tuple({global("torch", "per_channel_affine"), floats("1", 2), floats("2", 2), integer(0)});
  const std::string object =
      call(utils("_rebuild_qtensor"), tuple({storage("QInt8Storage", "0", 8), integer(0), tuple({integer(8)}),
                                             tuple({integer(1)}), quantizer, "\x89", "}"}));
  const source::Parsed parsed = parse_object(dict({{text("q"), object}}), {{"0", eight}, {"1", eight}, {"2", eight}});
  CHECK(names_of(parsed) == Names{"q", "q.scale", "q.zero_point"});
  CHECK(parsed.tensors.at(0).layout == Layout::quantized);
}

TEST_CASE("a nested tensor has one entry and its parts below it") {
  const std::string object =
      call(utils("_rebuild_nested_tensor"), tuple({tensor, floats("1", 2), floats("2", 2), floats("3", 2)}));
  const source::Parsed parsed =
      parse_object(dict({{text("n"), object}}), {{"0", eight}, {"1", eight}, {"2", eight}, {"3", eight}});
  CHECK(names_of(parsed) == Names{"n", "n.buffer", "n.sizes", "n.strides", "n.storage_offsets"});
  CHECK(parsed.tensors.at(0).layout == Layout::nested);
}

TEST_CASE("a wrapper subclass has an entry without bytes and its inner tensors below it") {
  const std::string type = global("torchao.dtypes", "Quantized");
  const std::string args =
      tuple({type, global("torch", "float32"), tuple({integer(4)}), tuple({integer(1)}), integer(0), "N", "N", "\x89"});
  const std::string object = call(global("torch._tensor", "_rebuild_from_type_v2"),
                                  tuple({utils("_rebuild_wrapper_subclass"), type, args,
                                         dict({{text("inner"), tensor}, {text("scale"), floats("1", 2)}})}));
  const source::Parsed parsed = parse_object(dict({{text("w"), object}}), {{"0", eight}, {"1", eight}});
  CHECK(names_of(parsed) == Names{"w", "w.inner", "w.scale"});
  CHECK_FALSE(parsed.tensors.at(0).has_bytes);
}

TEST_CASE("a sharded tensor is one tensor with global shape and offsets") {
  const auto api = [](std::string_view name) { return global("torch.distributed._shard.sharded_tensor.api", name); };
  const std::string metadata = instance(api("ShardMetadata"), dict({{text("shard_offsets"), list({integer(2)})}}));
  const std::string shard = instance(api("Shard"), dict({{text("tensor"), tensor}, {text("metadata"), metadata}}));
  const std::string whole =
      instance(api("ShardedTensorMetadata"),
               dict({{text("size"), call(global("torch", "Size"), tuple({tuple({integer(8)})}))}}));
  const std::string object = instance(api("ShardedTensor"), tuple({list({shard}), whole, "N", "N", "\x89"}));
  const source::Parsed parsed = parse_object(dict({{text("s"), object}}), {{"0", eight}});
  REQUIRE(names_of(parsed) == Names{"s"});
  CHECK(parsed.tensors[0].global_shape == std::vector<std::int64_t>{8});
  CHECK(parsed.tensors[0].global_offsets == std::vector<std::int64_t>{2});
}

TEST_CASE("wrappers that share wrappers don't multiply without end") {
  // Each level lists the one below twice; nothing but a limit ends that.
  const auto wrap = [](const std::string& inner) {
    return call(utils("_rebuild_parameter"), tuple({inner, "\x88", "}"}));
  };
  std::string object = tensor;
  for (int i = 0; i < 40; ++i) object = wrap(object);
  const source::Parsed parsed = parse_object(object, {{"0", eight}});
  CHECK(parsed.kind == FileKind::opaque);
  CHECK(parsed.note.find("wrapped too often") != std::string::npos);
}

TEST_CASE("protocol 0 text forms are read") {
  const std::string bytes = "(dp0\nS'it\\'s'\np1\nV\\u00e9\np2\nsI01\nF1.5\ns.";
  const source::PickleResult result = source::read_pickle(as_bytes(bytes));
  REQUIRE(result.status == source::PickleStatus::complete);
  const source::Pickle& pickle = result.pickle;
  CHECK(pickle.text(pickle.lookup(pickle.root(), "it's")) == "\xc3\xa9");
}

TEST_CASE("a pickle cut short anywhere is told from an altered one") {
  const std::string bytes = pickle(dict({{text("w"), tensor}}));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CAPTURE(size);
    const std::string part = bytes.substr(0, size);
    CHECK(source::read_pickle(as_bytes(part)).status == source::PickleStatus::cut_short);
  }
}
