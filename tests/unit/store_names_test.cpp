// SPDX-License-Identifier: Apache-2.0
// Names: addresses as users write them, and files and directories inside a store.
#include "store/layout.hpp"

#include <ckpt/address.hpp>
#include <ckpt/error.hpp>

#include <doctest/doctest.h>
#include <string>
#include <vector>

using namespace ckpt;
using namespace ckpt::store;

namespace {

bool is_refused(const char* text) {
  try {
    (void)parse_address(text);
  } catch (const Error& error) {
    return error.code() == Errc::invalid_argument;
  }
  return false;
}

}  // namespace

TEST_SUITE("store addresses") {
  TEST_CASE("a suffix of digits is a step") {
    const Address address = parse_address("runs/a@1000");
    CHECK(address.store == "runs/a");
    CHECK(address.selector.kind == Selector::Kind::step);
    CHECK(address.selector.step == 1000);
    CHECK(parse_address("a@0").selector.step == 0);
    CHECK(parse_address("a@0000000012").selector.step == 12);
    CHECK(parse_address("a@9999999999").selector.step == max_step);
  }

  TEST_CASE("latest, latest~N and id:PREFIX are selectors") {
    CHECK(parse_address("a@latest").selector.kind == Selector::Kind::latest);
    CHECK(parse_address("a@latest").selector.back == 0);
    CHECK(parse_address("a@latest~2").selector.back == 2);
    const Address id = parse_address("a@id:00ff");
    CHECK(id.selector.kind == Selector::Kind::id);
    CHECK(id.selector.id_prefix == "00ff");
  }

  TEST_CASE("anything else after an @ is part of the path") {
    for (const char* text : {"a", "a@b", "a@1000/", "a@1000/b", "a@latest/b", "me@host", "a@1x", "a@latestx",
                             "a@latest~", "a@latest~x", "a@-1", "a@+1", "a@ 1", "./a:b"}) {
      CAPTURE(text);
      CHECK(parse_address(text).store == text);
      CHECK(parse_address(text).selector.kind == Selector::Kind::none);
    }
    CHECK(parse_address("x@1/a@2").store == "x@1/a");
    CHECK(parse_address("a@1@2").store == "a@1");
  }

  TEST_CASE("an address that can't be meant is refused") {
    for (const char* text :
         {"", "@1", "a@", "x/a@", "a@10000000000", "a@99999999999999999999999", "a@id:", "a@id:00f", "a@id:00FF",
          "a@id:xyzw", "a@id:000000000000000000000000000000000", "a@latest~99999999999999999999"}) {
      CAPTURE(text);
      CHECK(is_refused(text));
    }
  }

  TEST_CASE("an address is printed so that it's read back as itself") {
    for (const char* text : {"a", "a@7", "a@latest", "a@latest~3", "a@id:abcd", "a@b@7"}) {
      CAPTURE(text);
      CHECK(to_string(parse_address(text)) == text);
    }
    const Address odd{.store = "a@7", .selector = {}};
    CHECK(parse_address(to_string(odd)).selector.kind == Selector::Kind::none);
    CHECK(address_of("runs/a", 12) == "runs/a@12");
  }
}

TEST_SUITE("store layout") {
  TEST_CASE("a step is ten digits") {
    CHECK(step_name(0) == "0000000000");
    CHECK(step_name(max_step) == "9999999999");
    CHECK(parse_step_name("0000001000") == 1000U);
    for (const char* name :
         {"", "1000", "00000010000", "000000100x", "-000000001", "+000000001", " 000000001", "0x00000010"}) {
      CAPTURE(name);
      CHECK_FALSE(parse_step_name(name));
    }
  }

  TEST_CASE("a set's name says step, world size and attempt") {
    const SetKey key{.step = 1010, .world_size = 4, .attempt = 2};
    CHECK(set_name(key) == "0000001010.4.2");
    CHECK(parse_set_name("0000001010.4.2") == key);
    for (const char* name :
         {"0000001010", "0000001010.4", "0000001010.4.", "0000001010.0.2", "0000001010.4.2.1", "1010.4.2",
          "0000001010.-4.2", "0000001010.4.x", "tmp", "attempt-0000000002", "0000001010..2"}) {
      CAPTURE(name);
      CHECK_FALSE(parse_set_name(name));
    }
  }

  TEST_CASE("a shard's name says rank, world size and version") {
    CHECK(shard_name({.rank = 0, .world_size = 4}) == "shard-00000-of-00004.ckpt");
    CHECK(shard_name({.rank = 3, .world_size = 4, .version = 2}) == "shard-00003-of-00004.2.ckpt");
    CHECK(shard_name({.rank = 123456, .world_size = 1000000}) == "shard-123456-of-1000000.ckpt");
    for (const ShardName& shard :
         {ShardName{.rank = 0, .world_size = 1}, ShardName{.rank = 7, .world_size = 99999, .version = 1},
          ShardName{.rank = 123456, .world_size = 1000000, .version = 12}}) {
      const auto read = parse_shard_name(shard_name(shard));
      REQUIRE(read);
      CHECK(read->rank == shard.rank);
      CHECK(read->world_size == shard.world_size);
      CHECK(read->version == shard.version);
    }
    for (const char* name :
         {"shard-00004-of-00004.ckpt", "shard-00000-of-00000.ckpt", "shard-00000.ckpt", "shard--of-.ckpt",
          "shard-00000-of-00004", "shard-00000-of-00004.ckpt.1", "shard-00000-of-00004.x.ckpt", "manifest.json", "",
          "shard-.ckpt", "shard-00000-of-00004.1.2.ckpt"}) {
      CAPTURE(name);
      CHECK_FALSE(parse_shard_name(name));
    }
  }

  TEST_CASE("an attempt's name leads back to it") {
    CHECK(attempt_name(2) == "attempt-0000000002");
    CHECK(parse_attempt_name(attempt_name(UINT64_MAX)) == UINT64_MAX);
    CHECK_FALSE(parse_attempt_name("attempt-"));
    CHECK_FALSE(parse_attempt_name("attempt-x"));
    CHECK_FALSE(parse_attempt_name("0000000002"));
  }
}
