// SPDX-License-Identifier: Apache-2.0
// Sealed JSON, manifests, store descriptions and times: round trips, and one false statement at a time.
#include "format/constants.hpp"
#include "format/container_index.hpp"
#include "format/damaged.hpp"
#include "format/manifest.hpp"
#include "format/rfc3339.hpp"
#include "format/sealed_json.hpp"

#include <ckpt/error.hpp>

#include <doctest/doctest.h>
#include <functional>
#include <nlohmann/json.hpp>

using namespace ckpt;
using namespace ckpt::format;
using OrderedJson = nlohmann::ordered_json;

namespace {

Manifest sound_manifest() {
  Manifest manifest;
  manifest.step = 1000;
  manifest.attempt = 3;
  manifest.world_size = 2;
  manifest.created = 1700000000;
  manifest.meta = {{"loss", "0.5"}, {"who", "\xc3\xa9"}};
  manifest.marks = {{"suspect", "a reason"}};
  manifest.timings = {{"save", 1.5}};
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    manifest.shards.push_back({.rank = rank,
                               .file = "shard-0000" + std::to_string(rank) + "-of-00002.ckpt",
                               .size = 1000 + rank,
                               .root = xxh3_128("root" + std::to_string(rank)),
                               .digest = xxh3_128("digest" + std::to_string(rank)),
                               .files = 2,
                               .tensors = 3,
                               .raw_bytes = 900});
  }
  manifest.id = checkpoint_id({manifest.shards[0].root, manifest.shards[1].root});
  return manifest;
}

/// A sealed text taken apart, changed, and sealed again.
std::string edited(const std::string& text, const std::function<void(OrderedJson&)>& edit) {
  OrderedJson object = unseal(text, "x");
  object.erase("xxh3_128");
  edit(object);
  return seal(object);
}

Errc code_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.code();
  }
  return Errc::interrupted;
}

}  // namespace

TEST_SUITE("format sealed json") {
  TEST_CASE("an object comes back, and its text ends with its digest") {
    const OrderedJson object = {{"b", 1}, {"a", {{"c", "d"}}}};
    const std::string text = seal(object);
    OrderedJson read = unseal(text, "x");
    CHECK(read.contains("xxh3_128"));
    read.erase("xxh3_128");
    CHECK(read.dump() == object.dump());
    CHECK(is_sealed(text));
    const std::string part = text.substr(0, text.rfind("  \"xxh3_128\""));
    CHECK(text == part + "  \"xxh3_128\": \"" + to_hex(xxh3_128(std::string_view(part))) + "\"\n}\n");
  }

  TEST_CASE("any flipped bit is refused") {
    const std::string sound = seal({{"a", 1}});
    for (std::size_t bit = 0; bit < sound.size() * 8; ++bit) {
      std::string text = sound;
      text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
      CHECK_THROWS_AS((void)unseal(text, "x"), Damaged);
    }
  }

  TEST_CASE("a text cut short anywhere is truncated") {
    const std::string sound = seal({{"a", 1}});
    for (std::size_t size = 0; size < sound.size(); ++size) {
      try {
        (void)unseal(sound.substr(0, size), "x");
        FAIL("accepted");
      } catch (const Damaged& damage) {
        CHECK(damage.kind() == DamageKind::truncated);
      }
    }
  }

  TEST_CASE("a sealed text that is no object is refused") {
    const std::string part = "[\n  1,\n";
    const std::string text = part + "  \"xxh3_128\": \"" + to_hex(xxh3_128(std::string_view(part))) + "\"\n}\n";
    CHECK_THROWS_AS((void)unseal(text, "x"), Damaged);
  }

  TEST_CASE("a sealed text nested without end is refused") {
    const std::string part = "{\n  \"a\": " + std::string(200000, '[') + std::string(200000, ']') + ",\n";
    const std::string text = part + "  \"xxh3_128\": \"" + to_hex(xxh3_128(std::string_view(part))) + "\"\n}\n";
    CHECK_THROWS_AS((void)unseal(text, "x"), Damaged);
  }

  TEST_CASE("bytes that aren't UTF-8 don't keep an object from being sealed") {
    CHECK(unseal(seal({{"a", "\xff"}}), "x")["a"] == "\xef\xbf\xbd");
  }
}

TEST_SUITE("format manifest") {
  TEST_CASE("a manifest comes back as it was written") {
    const Manifest wrote = sound_manifest();
    const Manifest read = decode_manifest(encode_manifest(wrote), "x");
    CHECK(read.id == wrote.id);
    CHECK(read.step == 1000);
    CHECK(read.attempt == 3);
    CHECK(read.world_size == 2);
    CHECK(read.created == 1700000000);
    CHECK(read.meta == wrote.meta);
    CHECK(read.marks == wrote.marks);
    CHECK(read.timings == wrote.timings);
    CHECK(read.is_marked());
    CHECK(read.stored_bytes() == 2001);
    REQUIRE(read.shards.size() == 2);
    CHECK(read.shards[1].rank == 1);
    CHECK(read.shards[1].file == "shard-00001-of-00002.ckpt");
    CHECK(read.shards[1].size == 1001);
    CHECK(read.shards[1].root == wrote.shards[1].root);
    CHECK(read.shards[1].digest == wrote.shards[1].digest);
    CHECK(read.shards[1].files == 2);
    CHECK(read.shards[1].tensors == 3);
    CHECK(read.shards[1].raw_bytes == 900);
  }

  TEST_CASE("suspect, lossy and poisoned are marks, others aren't") {
    Manifest manifest;
    for (const char* mark : {"suspect", "lossy", "poisoned"}) {
      manifest.marks = {{mark, ""}};
      CHECK(manifest.is_marked());
    }
    manifest.marks = {{"derived_from", "x"}};
    CHECK_FALSE(manifest.is_marked());
  }

  TEST_CASE("an unknown member is passed over") {
    CHECK_NOTHROW((void)decode_manifest(edited(encode_manifest(sound_manifest()),
                                               [](OrderedJson& o) {
                                                 o["later"] = {1, 2};
                                                 o["shards"][0]["later"] = "x";
                                                 o["compat"] = 1;
                                                 o["ro_compat"] = 1;
                                                 o["version"] = {1, 7};
                                               }),
                                        "x"));
  }

  TEST_CASE("a manifest of a newer minor version, or with an unknown ro_compat flag, is for reading only") {
    const auto read_only = [](const std::function<void(OrderedJson&)>& edit) {
      return !decode_manifest(edited(encode_manifest(sound_manifest()), edit), "x").read_only.empty();
    };
    CHECK_FALSE(read_only([](OrderedJson&) {}));
    CHECK_FALSE(read_only([](OrderedJson& o) { o["compat"] = 1; }));
    CHECK(read_only([](OrderedJson& o) { o["version"] = {1, 1}; }));
    CHECK(read_only([](OrderedJson& o) { o["ro_compat"] = 1; }));
  }

  TEST_CASE("an unknown incompat flag and a newer version are unsupported, not damaged") {
    const auto code = [](const std::function<void(OrderedJson&)>& edit) {
      const std::string text = edited(encode_manifest(sound_manifest()), edit);
      return code_of([&] { (void)decode_manifest(text, "x"); });
    };
    CHECK(code([](OrderedJson& o) { o["incompat"] = 4; }) == Errc::unsupported);
    CHECK(code([](OrderedJson& o) { o["version"] = {2, 0}; }) == Errc::unsupported);
    CHECK(code([](OrderedJson& o) { o["version"] = {0, 9}; }) == Errc::unsupported);
  }

  TEST_CASE("a manifest without a needed member is refused") {
    const std::string sound = encode_manifest(sound_manifest());
    const std::string text = edited(sound, [](OrderedJson&) {});
    CHECK_NOTHROW((void)decode_manifest(text, "x"));
    for (const char* member :
         {"format", "version", "compat", "ro_compat", "incompat", "id", "step", "attempt", "world_size", "shards"}) {
      CAPTURE(member);
      CHECK_THROWS_AS((void)decode_manifest(edited(sound, [&](OrderedJson& o) { o.erase(member); }), "x"), Damaged);
      CHECK_THROWS_AS((void)decode_manifest(edited(sound, [&](OrderedJson& o) { o[member] = nullptr; }), "x"), Damaged);
    }
    for (const char* member : {"rank", "file", "size", "root", "digest", "files", "tensors", "raw_bytes"}) {
      CAPTURE(member);
      CHECK_THROWS_AS((void)decode_manifest(edited(sound, [&](OrderedJson& o) { o["shards"][1].erase(member); }), "x"),
                      Damaged);
    }
  }

  TEST_CASE("a manifest that says what can't be is refused") {
    const std::vector<std::pair<const char*, std::function<void(OrderedJson&)>>> edits = {
        {"another format", [](OrderedJson& o) { o["format"] = "ckpt-store"; }},
        {"version of one number", [](OrderedJson& o) { o["version"] = {1}; }},
        {"another id", [](OrderedJson& o) { o["id"] = std::string(32, '0'); }},
        {"id in upper case", [](OrderedJson& o) { o["id"] = std::string(32, 'A'); }},
        {"another root", [](OrderedJson& o) { o["shards"][0]["root"] = std::string(32, '0'); }},
        {"shards swapped", [](OrderedJson& o) { std::swap(o["shards"][0], o["shards"][1]); }},
        {"a shard twice", [](OrderedJson& o) { o["shards"][1] = o["shards"][0]; }},
        {"a shard less", [](OrderedJson& o) { o["shards"].erase(1); }},
        {"a shard more than the world", [](OrderedJson& o) { o["world_size"] = 1; }},
        {"no shards",
         [](OrderedJson& o) {
           o["shards"] = OrderedJson::array();
           o["world_size"] = 0;
         }},
        {"shards as an object", [](OrderedJson& o) { o["shards"] = OrderedJson::object(); }},
        {"a shard that is a number", [](OrderedJson& o) { o["shards"][0] = 1; }},
        {"world size beyond its limit", [](OrderedJson& o) { o["world_size"] = max_world_size + 1; }},
        {"a negative step", [](OrderedJson& o) { o["step"] = -1; }},
        {"a step with a fraction", [](OrderedJson& o) { o["step"] = 1.5; }},
        {"a file elsewhere", [](OrderedJson& o) { o["shards"][0]["file"] = "../x"; }},
        {"a file below", [](OrderedJson& o) { o["shards"][0]["file"] = "a/b"; }},
        {"a file at the root", [](OrderedJson& o) { o["shards"][0]["file"] = "/x"; }},
        {"a file without a name", [](OrderedJson& o) { o["shards"][0]["file"] = ""; }},
        {"the directory itself", [](OrderedJson& o) { o["shards"][0]["file"] = ".."; }},
        {"a time that is none", [](OrderedJson& o) { o["created"] = "yesterday"; }},
        {"metadata as a number", [](OrderedJson& o) { o["meta"]["k"] = 1; }},
        {"marks as a list", [](OrderedJson& o) { o["marks"] = {"suspect"}; }},
    };
    for (const auto& [name, edit] : edits) {
      const std::string what = name;
      CAPTURE(what);
      CHECK_THROWS_AS((void)decode_manifest(edited(encode_manifest(sound_manifest()), edit), "x"), Damaged);
    }
  }

  TEST_CASE("a store's description is accepted as it's written, and bars what it doesn't know") {
    const std::string sound = encode_store_description();
    CHECK_NOTHROW(check_store_description(sound, "x", true));
    const auto code = [&](bool for_writing, const std::function<void(OrderedJson&)>& edit) {
      const std::string text = edited(sound, edit);
      return code_of([&] { check_store_description(text, "x", for_writing); });
    };
    const auto set = [](const char* key, std::uint64_t value) { return [=](OrderedJson& o) { o[key] = value; }; };
    CHECK(code(false, set("incompat", 4)) == Errc::unsupported);
    CHECK(code(false, set("ro_compat", 1)) == Errc::interrupted);
    CHECK(code(true, [](OrderedJson& o) { o["version"] = {1, 1}; }) == Errc::unsupported);
    CHECK(code(false, [](OrderedJson& o) { o["version"] = {1, 1}; }) == Errc::interrupted);
    CHECK(code(true, set("ro_compat", 1)) == Errc::unsupported);
    CHECK(code(true, set("compat", 1)) == Errc::interrupted);
    CHECK(code(true, set("block_size", 1U << 20U)) == Errc::unsupported);
    CHECK(code(false, [](OrderedJson& o) { o["format"] = "ckpt-manifest"; }) == Errc::damaged);
  }
}

TEST_SUITE("format time") {
  TEST_CASE("a time is written as RFC 3339 and read back") {
    CHECK(rfc3339(0) == "1970-01-01T00:00:00Z");
    CHECK(rfc3339(1709251199) == "2024-02-29T23:59:59Z");
    CHECK(rfc3339(-1) == "1969-12-31T23:59:59Z");
    for (const std::int64_t t :
         {std::int64_t{0}, std::int64_t{-62167219200}, std::int64_t{253402300799}, std::int64_t{951782400}}) {
      CHECK(from_rfc3339(rfc3339(t)) == t);
    }
  }

  TEST_CASE("a time beyond four digits of years is bounded") {
    CHECK(rfc3339(INT64_MAX) == "9999-12-31T23:59:59Z");
    CHECK(rfc3339(INT64_MIN) == "0000-01-01T00:00:00Z");
  }

  TEST_CASE("anything but the written form is refused") {
    for (const char* text :
         {"", "1970-01-01", "1970-01-01T00:00:00", "1970-01-01T00:00:00+00:00", "1970-01-01 00:00:00Z",
          "1970-13-01T00:00:00Z", "1970-02-30T00:00:00Z", "1970-00-01T00:00:00Z", "1970-01-01T24:00:00Z",
          "1970-01-01T00:60:00Z", "1970-01-01T00:00:60Z", "+970-01-01T00:00:00Z", "1970-01-01T00:00:0 Z"}) {
      CAPTURE(text);
      CHECK_FALSE(from_rfc3339(text));
    }
  }
}
