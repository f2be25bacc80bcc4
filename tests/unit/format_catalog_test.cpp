// SPDX-License-Identifier: Apache-2.0
// The catalog: round trip, and one false statement at a time, each refused.
#include "format/constants.hpp"
#include "format/path_rules.hpp"
#include "format_support.hpp"

#include <doctest/doctest.h>
#include <functional>

using namespace ckpt;
using namespace ckpt::format;
using format_test::column;

namespace {

Json sound_document() { return parse_cbor(encode_catalog(format_test::small_sample().catalog), "catalog"); }

void decode_edited(const std::function<void(Json&)>& edit) {
  Json document = sound_document();
  edit(document);
  (void)decode_catalog(dump_cbor(document));
}

struct Edit {
  const char* what;
  std::function<void(Json&)> apply;
};

void check_refused(const std::vector<Edit>& edits) {
  for (const Edit& edit : edits) {
    CAPTURE(edit.what);
    CHECK_THROWS_AS(decode_edited(edit.apply), Damaged);
  }
}

FileEntry entry(std::string path, EntryType type = EntryType::file, std::string target = {}) {
  FileEntry file;
  file.path = std::move(path);
  file.type = type;
  file.target = std::move(target);
  return file;
}

Json packed(const std::vector<std::uint8_t>& bytes) { return Json::binary(bytes); }

Bytes cbor(std::initializer_list<unsigned> bytes) {
  Bytes out;
  for (const unsigned b : bytes) out.push_back(static_cast<std::byte>(b));
  return out;
}

}  // namespace

TEST_SUITE("format catalog") {
  TEST_CASE("a catalog comes back as it was written") {
    const Catalog wrote = format_test::small_sample().catalog;
    const Catalog read = decode_catalog(encode_catalog(wrote));
    CHECK(read.shard.step == 7);
    CHECK(read.shard.attempt == 2);
    CHECK(read.shard.rank == 1);
    CHECK(read.shard.world_size == 4);
    CHECK(read.shard.meta == wrote.shard.meta);
    CHECK(read.shard.created == 99);
    CHECK(read.shard.writer == "test 1");
    REQUIRE(read.files.size() == wrote.files.size());
    for (std::size_t i = 0; i < read.files.size(); ++i) {
      const FileEntry& a = wrote.files[i];
      const FileEntry& b = read.files[i];
      CAPTURE(a.path);
      CHECK(b.path == a.path);
      CHECK(b.type == a.type);
      CHECK(b.mode == a.mode);
      CHECK(b.size == a.size);
      CHECK(b.mtime_ns == a.mtime_ns);
      CHECK(b.target == a.target);
      CHECK(b.kind == a.kind);
      CHECK(b.note == a.note);
      CHECK(b.uid == a.uid);
      CHECK(b.first_block == a.first_block);
      CHECK(b.block_count == a.block_count);
      CHECK(b.first_extent == a.first_extent);
      CHECK(b.extent_count == a.extent_count);
      CHECK(b.first_tensor == a.first_tensor);
      CHECK(b.tensor_count == a.tensor_count);
    }
    CHECK(read.extents == wrote.extents);
    CHECK(read.tensors == wrote.tensors);
    CHECK(read.block_sizes == wrote.block_sizes);
  }

  TEST_CASE("owners come back, and all have one or none") {
    Catalog catalog = format_test::small_sample().catalog;
    for (FileEntry& file : catalog.files) file.uid = file.gid = 1000;
    CHECK(decode_catalog(encode_catalog(catalog)).files.at(3).gid == 1000U);
  }

  TEST_CASE("an empty catalog is one") {
    Catalog catalog;
    CHECK(decode_catalog(encode_catalog(catalog)).files.empty());
  }

  TEST_CASE("unknown members and columns are passed over") {
    CHECK_NOTHROW(decode_edited([](Json& d) {
      d["later"] = {{"a", 1}};
      d["shard"]["later"] = "x";
      d["files"]["later"] = packed({1, 2, 3});
      d["tensors"]["later"] = true;
      d["blocks"]["later"] = nullptr;
    }));
  }

  TEST_CASE("a missing table or column is refused") {
    const Json sound = sound_document();
    for (const auto& [table, members] : sound.items()) {
      const std::string of_table = table;
      CAPTURE(of_table);
      CHECK_THROWS_AS(decode_edited([&, name = table](Json& d) { d.erase(name); }), Damaged);
      for (const auto& [name, value] : members.items()) {
        const std::string of_column = name;
        CAPTURE(of_column);
        if (table == "shard" && name == "created") continue;
        CHECK_THROWS_AS(decode_edited([&, t = table, c = name](Json& d) { d[t].erase(c); }), Damaged);
        CHECK_THROWS_AS(decode_edited([&, t = table, c = name](Json& d) { d[t][c] = nullptr; }), Damaged);
      }
    }
  }

  TEST_CASE("a column with another number of rows is refused") {
    const Json sound = sound_document();
    for (const auto& [table, members] : sound.items()) {
      if (table == "shard") continue;
      for (const auto& [name, value] : members.items()) {
        const std::string column_name = table + "." + name;
        CAPTURE(column_name);
        CHECK_THROWS_AS(decode_edited([&, t = table, c = name](Json& d) { d[t][c].get_binary().push_back(1); }),
                        Damaged);
        CHECK_THROWS_AS(decode_edited([&, t = table, c = name](Json& d) {
                          auto& bytes = d[t][c].get_binary();
                          bytes.insert(bytes.end(), 8, 0);
                        }),
                        Damaged);
        if (value.get_binary().empty()) continue;
        CHECK_THROWS_AS(decode_edited([&, t = table, c = name](Json& d) { d[t][c].get_binary().pop_back(); }), Damaged);
      }
    }
  }

  TEST_CASE("a shard that can't be is refused") {
    check_refused({
        {"world size 0",
         [](Json& d) {
           d["shard"]["world_size"] = 0;
           d["shard"]["rank"] = 0;
         }},
        {"world size too large", [](Json& d) { d["shard"]["world_size"] = max_world_size + 1; }},
        {"rank beyond 32 bits", [](Json& d) { d["shard"]["rank"] = 1ULL << 32U; }},
        {"rank of the next world", [](Json& d) { d["shard"]["rank"] = 4; }},
        {"negative step", [](Json& d) { d["shard"]["step"] = -1; }},
        {"step as text", [](Json& d) { d["shard"]["step"] = "7"; }},
        {"step as a bool", [](Json& d) { d["shard"]["step"] = true; }},
        {"metadata as number", [](Json& d) { d["shard"]["meta"]["k"] = 1; }},
        {"metadata as text", [](Json& d) { d["shard"]["meta"] = "k"; }},
        {"created as text", [](Json& d) { d["shard"]["created"] = "now"; }},
    });
  }

  TEST_CASE("a file that can't be is refused") {
    // Rows: a (directory), a/empty, a/one, b, c (symlink), d (hard link).
    check_refused({
        {"unknown type",
         [](Json& d) {
           d["files"]["type"] = packed({1, 0, 0, 0, 2, 4});
         }},
        {"unknown kind",
         [](Json& d) {
           d["files"]["kind"] = packed({0, 0, file_kind_count, 0, 0, 0});
         }},
        {"mode with a type in it",
         [](Json& d) {
           d["files"]["mode"] = column<std::uint32_t>({0100644, 0, 0, 0, 0, 0});
         }},
        {"a directory with content",
         [](Json& d) {
           d["files"]["type"] = packed({1, 0, 1, 0, 2, 3});
         }},
        {"a file that isn't as large",
         [](Json& d) {
           d["files"]["size"] = column<std::uint64_t>({0, 0, 301, 70000, 0, 0});
         }},
        {"an empty file with a size",
         [](Json& d) {
           d["files"]["size"] = column<std::uint64_t>({0, 1, 300, 70000, 0, 0});
         }},
        {"a directory with a size",
         [](Json& d) {
           d["files"]["size"] = column<std::uint64_t>({1, 0, 300, 70000, 0, 0});
         }},
        {"a block less",
         [](Json& d) {
           d["files"]["blocks"] = column<std::uint64_t>({0, 0, 1, 0, 0, 0});
         }},
        {"a block more",
         [](Json& d) {
           d["files"]["blocks"] = column<std::uint64_t>({0, 0, 1, 2, 0, 0});
         }},
        {"blocks that overflow",
         [](Json& d) {
           d["files"]["blocks"] = column<std::uint64_t>({0, 0, 1, UINT64_MAX, 0, 0});
         }},
        {"blocks of another file",
         [](Json& d) {
           d["files"]["blocks"] = column<std::uint64_t>({0, 1, 0, 1, 0, 0});
         }},
        {"an extent more",
         [](Json& d) {
           d["files"]["extents"] = column<std::uint64_t>({0, 0, 3, 0, 0, 0});
         }},
        {"a tensor less",
         [](Json& d) {
           d["files"]["tensors"] = column<std::uint64_t>({0, 0, 1, 0, 0, 0});
         }},
        {"a tensor of a directory",
         [](Json& d) {
           d["files"]["tensors"] = column<std::uint64_t>({1, 0, 1, 0, 0, 0});
         }},
        {"a block of size zero",
         [](Json& d) {
           d["files"]["blocks"] = column<std::uint64_t>({0, 1, 1, 1, 0, 0});
           d["blocks"]["size"] = column<std::uint64_t>({0, 300, 70000});
         }},
        {"a block too large",
         [](Json& d) {
           d["files"]["size"] = column<std::uint64_t>({0, 0, 300, block_size + 1, 0, 0});
           d["blocks"]["size"] = column<std::uint64_t>({300, block_size + 1});
         }},
        {"a uid without a gid",
         [](Json& d) {
           d["files"]["uid"] = column<std::uint32_t>({0, 0, 0, 0, 0, 0});
         }},
        {"texts that overlap",
         [](Json& d) {
           d["files"]["path_end"] = column<std::uint64_t>({1, 8, 7, 14, 15, 16});
         }},
        {"texts that end elsewhere",
         [](Json& d) {
           d["files"]["path_end"] = column<std::uint64_t>({1, 8, 13, 14, 15, 15});
         }},
        {"texts beyond the column",
         [](Json& d) {
           d["files"]["path_end"] = column<std::uint64_t>({1, 8, 13, 14, 15, 99});
         }},
    });
  }

  TEST_CASE("an extent or tensor that can't be is refused") {
    // Of a/one, 300 bytes: float32 [8, 72), int64 [100, 116).
    check_refused({
        {"extent of no bytes",
         [](Json& d) {
           d["extents"]["size"] = column<std::uint64_t>({64, 0});
         }},
        {"extent beyond the file",
         [](Json& d) {
           d["extents"]["size"] = column<std::uint64_t>({64, 201});
         }},
        {"extent that overflows",
         [](Json& d) {
           d["extents"]["size"] = column<std::uint64_t>({64, UINT64_MAX});
         }},
        {"extents that overlap",
         [](Json& d) {
           d["extents"]["offset"] = column<std::uint64_t>({8, 71});
         }},
        {"extents out of order",
         [](Json& d) {
           d["extents"]["offset"] = column<std::uint64_t>({100, 8});
         }},
        {"extent of an unknown type",
         [](Json& d) {
           d["extents"]["dtype"] = packed({dtype_count, 0});
         }},
        {"tensor of an unknown type",
         [](Json& d) {
           d["tensors"]["dtype"] = packed({2, dtype_count});
         }},
        {"tensor of an unknown layout",
         [](Json& d) {
           d["tensors"]["layout"] = packed({layout_count, 0});
         }},
        {"tensor with an unknown flag",
         [](Json& d) {
           d["tensors"]["flags"] = packed({9, 5 | 16});
         }},
        {"tensor beyond the file",
         [](Json& d) {
           d["tensors"]["offset"] = column<std::uint64_t>({237, 100});
         }},
        {"tensor far beyond the file",
         [](Json& d) {
           d["tensors"]["offset"] = column<std::uint64_t>({UINT64_MAX - 1, 100});
         }},
        {"negative dimension",
         [](Json& d) {
           d["tensors"]["shape"] = column<std::int64_t>({4, 4, -2});
         }},
        {"negative stride",
         [](Json& d) {
           d["tensors"]["stride"] = column<std::int64_t>({4, 1, -1});
         }},
        {"stride beyond the file",
         [](Json& d) {
           d["tensors"]["stride"] = column<std::int64_t>({30, 1, 1});
         }},
        {"shape that overflows",
         [](Json& d) {
           d["tensors"]["shape"] = column<std::int64_t>({INT64_MAX, INT64_MAX, 2});
         }},
        {"more dimensions than numbers",
         [](Json& d) {
           d["tensors"]["dims"] = packed({2, 2});
         }},
        {"fewer dimensions than numbers",
         [](Json& d) {
           d["tensors"]["dims"] = packed({2, 0});
         }},
        {"sharded without a global shape",
         [](Json& d) {
           d["tensors"]["flags"] = packed({9, 5 | 8});
         }},
    });
    // The largest stride that stays inside, to know that the checks above are the only reason.
    CHECK_NOTHROW(decode_edited([](Json& d) { d["tensors"]["offset"] = column<std::uint64_t>({236, 100}); }));
  }

  TEST_CASE("a tensor without bytes may be of any place") {
    CHECK_NOTHROW(decode_edited([](Json& d) {
      d["tensors"]["flags"] = packed({8, 5});
      d["tensors"]["offset"] = column<std::uint64_t>({UINT64_MAX, 100});
    }));
  }

  TEST_CASE("a symlink that leaves the tree is refused") {
    const auto with_target = [](const char* target) {
      Catalog catalog;
      catalog.files = {entry("a/link", EntryType::symlink, target)};
      return encode_catalog(catalog);
    };
    CHECK_NOTHROW((void)decode_catalog(with_target("../x")));
    for (const char* target : {"../../x", "/etc/passwd", "", "x/../../..", "..//../x"}) {
      CAPTURE(target);
      CHECK_THROWS_AS((void)decode_catalog(with_target(target)), Damaged);
    }
  }
}

TEST_SUITE("format paths") {
  TEST_CASE("a path is safe if it can't leave a directory") {
    for (const char* path : {"a", "a/b", "...", "..a", "a..", "a b", ".hidden", "a\nb", "\xff"}) {
      CAPTURE(path);
      CHECK(is_safe_path(path));
    }
    for (const char* path : {"", "/", "/a", "a/", "a//b", ".", "..", "a/.", "./a", "a/..", "../a", "a/../b"}) {
      CAPTURE(path);
      CHECK_FALSE(is_safe_path(path));
    }
    CHECK_FALSE(is_safe_path(std::string_view("a\0b", 3)));
    CHECK(is_safe_path(std::string(4096, 'a')));
    CHECK_FALSE(is_safe_path(std::string(4097, 'a')));
  }

  TEST_CASE("a link's target stays inside if it goes up no further than the link lies deep, and before it goes down") {
    CHECK(stays_inside("a", "b"));
    CHECK(stays_inside("a", "."));
    CHECK(stays_inside("a", "b/c"));
    CHECK(stays_inside("d/a", "../b"));
    CHECK(stays_inside("d/e/a", "../../b"));
    CHECK(stays_inside("d/a", "./.././b"));
    CHECK_FALSE(stays_inside("a", ".."));
    CHECK_FALSE(stays_inside("d/a", "../.."));
    CHECK_FALSE(stays_inside("d/a", "b/.."));
    CHECK_FALSE(stays_inside("d/a", "b/../../../c"));
    CHECK_FALSE(stays_inside("a", "/b"));
    CHECK_FALSE(stays_inside("a", ""));
    CHECK_FALSE(stays_inside("a", std::string_view("b\0c", 3)));
    CHECK_FALSE(stays_inside("a", std::string(4097, 'b')));
  }

  TEST_CASE("paths are sorted and each is there once") {
    CHECK_NOTHROW(check_paths({entry("a"), entry("b")}));
    CHECK_NOTHROW(check_paths({entry("a"), entry("a.b"), entry("a\xff")}));
    CHECK_THROWS_AS(check_paths({entry("b"), entry("a")}), Damaged);
    CHECK_THROWS_AS(check_paths({entry("a"), entry("a")}), Damaged);
    CHECK_THROWS_AS(check_paths({entry("\xff"), entry("a")}), Damaged);
    CHECK_THROWS_AS(check_paths({entry("../a")}), Damaged);
  }

  TEST_CASE("nothing lies below what is not a directory") {
    CHECK_NOTHROW(check_paths({entry("a", EntryType::directory), entry("a/b")}));
    CHECK_NOTHROW(check_paths({entry("a/b")}));
    CHECK_THROWS_AS(check_paths({entry("a"), entry("a/b")}), Damaged);
    CHECK_THROWS_AS(check_paths({entry("a", EntryType::symlink, "x"), entry("a/b/c")}), Damaged);
    // Other names sort between a file and what lies below it.
    CHECK_THROWS_AS(check_paths({entry("a"), entry("a-"), entry("a/b")}), Damaged);
  }

  TEST_CASE("a hard link names a file of the list") {
    CHECK_NOTHROW(check_paths({entry("a"), entry("b", EntryType::hardlink, "a")}));
    CHECK_THROWS_AS(check_paths({entry("a"), entry("b", EntryType::hardlink, "c")}), Damaged);
    CHECK_THROWS_AS(check_paths({entry("a", EntryType::directory), entry("b", EntryType::hardlink, "a")}), Damaged);
    CHECK_THROWS_AS(check_paths({entry("b", EntryType::hardlink, "b")}), Damaged);
    CHECK_THROWS_AS(check_paths({entry("b", EntryType::hardlink, "../a")}), Damaged);
  }
}

TEST_SUITE("format cbor") {
  TEST_CASE("a table's columns come back") {
    TableWriter writer;
    writer.add<std::uint64_t>("n", {1, UINT64_MAX});
    writer.add<std::uint8_t>("none", {});
    writer.add_texts("t", {"", "ab"});
    const Json document = {{"table", std::move(writer).take()}};
    const Json read = parse_cbor(dump_cbor(document), "x");
    const TableReader table(read, "table");
    CHECK(table.numbers<std::uint64_t>("n", 2) == std::vector<std::uint64_t>{1, UINT64_MAX});
    CHECK(table.numbers<std::uint8_t>("none").empty());
    CHECK(table.texts("t", 2) == std::vector<std::string_view>{"", "ab"});
    CHECK_FALSE(table.has("x"));
    CHECK_THROWS_AS((void)table.bytes("x"), Damaged);
    CHECK_THROWS_AS((void)table.numbers<std::uint64_t>("n", 3), Damaged);
    CHECK_THROWS_AS((void)table.texts("t", 3), Damaged);
    CHECK_THROWS_AS(TableReader(read, "other"), Damaged);
  }

  TEST_CASE("every kind of item is written as the JSON library writes it, and comes back") {
    Json document = {{"yes", true}, {"no", false}, {"none", nullptr}, {"empty", ""}, {"list", {1, "a", {{"k", 2}}}}};
    for (const std::uint64_t n :
         {std::uint64_t{23}, std::uint64_t{24}, std::uint64_t{255}, std::uint64_t{256}, std::uint64_t{65535},
          std::uint64_t{65536}, std::uint64_t{UINT32_MAX}, std::uint64_t{UINT32_MAX} + 1, UINT64_MAX}) {
      document["n"].push_back(n);
      if (n > INT64_MAX) continue;
      document["n"].push_back(-static_cast<std::int64_t>(n));
      document["n"].push_back(-1 - static_cast<std::int64_t>(n));
      if (n <= 65536) document["t"].push_back(std::string(n, 'x'));
      if (n <= 65536) document["b"].push_back(Json::binary(std::vector<std::uint8_t>(n, 7)));
    }
    document["n"].push_back(INT64_MIN);
    const Bytes written = dump_cbor(document);
    const std::vector<std::uint8_t> theirs = Json::to_cbor(document);
    CHECK(as_text(written) == std::string(theirs.begin(), theirs.end()));
    CHECK(parse_cbor(written, "x") == document);
  }

  TEST_CASE("a document cut short anywhere is refused") {
    const Bytes whole = encode_catalog(format_test::small_sample().catalog);
    for (std::size_t size = 0; size < whole.size(); ++size) {
      CHECK_THROWS_AS((void)parse_cbor(ByteView(whole).first(size), "x"), Damaged);
    }
  }

  TEST_CASE("what isn't plain is refused") {
    CHECK_NOTHROW((void)parse_cbor(cbor({0xa0}), "x"));
    CHECK_NOTHROW((void)parse_cbor(cbor({0xa1, 0x61, 'k', 0x83, 0xf4, 0xf5, 0xf6}), "x"));
    CHECK_THROWS_AS((void)parse_cbor(cbor({0xa0, 0x00}), "x"), Damaged);                         // trailing byte
    CHECK_THROWS_AS((void)parse_cbor(cbor({0x80}), "x"), Damaged);                               // not a map
    CHECK_THROWS_AS((void)parse_cbor(cbor({0xbf, 0xff}), "x"), Damaged);                         // indefinite length
    CHECK_THROWS_AS((void)parse_cbor(cbor({0xa1, 0x61, 'k', 0xc0, 0x01}), "x"), Damaged);        // tag
    CHECK_THROWS_AS((void)parse_cbor(cbor({0xa1, 0x61, 'k', 0xf9, 0x3c, 0x00}), "x"), Damaged);  // float
    CHECK_THROWS_AS((void)parse_cbor(cbor({0xa1, 0x61, 'k', 0xf7}), "x"), Damaged);              // undefined
    CHECK_THROWS_AS((void)parse_cbor(cbor({0xa1, 0x01, 0x01}), "x"), Damaged);                   // key not a text
    CHECK_THROWS_AS((void)parse_cbor(cbor({0xa1, 0x61, 'k', 0x3b, 0x80, 0, 0, 0, 0, 0, 0, 0}), "x"), Damaged);
    CHECK_THROWS_AS((void)parse_cbor(cbor({0xbb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}), "x"), Damaged);
    CHECK_THROWS_AS(
        (void)parse_cbor(cbor({0xa1, 0x61, 'k', 0x5b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}), "x"), Damaged);
    CHECK_THROWS_AS((void)parse_cbor(cbor({0xa1, 0x61, 'k', 0x9b, 0x80, 0, 0, 0, 0, 0, 0, 0}), "x"), Damaged);
  }

  TEST_CASE("a document nested without end is refused") {
    Bytes deep = cbor({0xa1, 0x61, 'k'});
    deep.resize(deep.size() + 100000, std::byte{0x81});
    deep.push_back(std::byte{0});
    CHECK_THROWS_AS((void)parse_cbor(deep, "x"), Damaged);
  }

  TEST_CASE("a document with more items than any index has is refused") {
    Bytes wide = cbor({0xa1, 0x61, 'k', 0x9a, 0x00, 0x20, 0x00, 0x00});
    wide.resize(wide.size() + (1U << 21U));
    CHECK_THROWS_AS((void)parse_cbor(wide, "x"), Damaged);
  }
}
