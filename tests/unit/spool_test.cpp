// SPDX-License-Identifier: Apache-2.0
// Tickets, intents and entries: what is written is read back, and what others may have written is refused.
#include "core/percent_text.hpp"
#include "doors/spool.hpp"
#include "doors/spool_moves.hpp"
#include "doors/ticket.hpp"
#include "doors/tree_builder.hpp"
#include "format/sealed_json.hpp"
#include "os/small_file.hpp"
#include "scratch.hpp"

#include <ckpt/error.hpp>

#include <doctest/doctest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

namespace ckpt::doors {
namespace {

Ticket sample_ticket() {
  Ticket ticket;
  ticket.save.step = 1000;
  ticket.save.rank = 3;
  ticket.save.world_size = 8;
  ticket.save.attempt = 2;
  ticket.save.resumed_from = 990;
  ticket.save.meta = {{"loss", "0.5"}, {"note", "a \"quoted\" ü"}};
  ticket.save.encode = Encode::best;
  ticket.save.base = BaseChoice::step;
  ticket.save.base_step = 990;
  ticket.save.check = false;
  ticket.save.fixed_time = -5;
  ticket.created_ns = 1'700'000'000'000'000'001;
  ticket.host = "node1";
  ticket.files = 4;
  ticket.raw_bytes = 1U << 30U;
  ticket.implied_directories = {"a", "a/b\xff"};
  return ticket;
}

/// A ticket with one member set to something else, sealed again.
std::string with(const char* key, const nlohmann::ordered_json& value) {
  auto object = format::unseal(encode_ticket(sample_ticket()), "ticket");
  object.erase("xxh3_128");
  object[key] = value;
  return format::seal(object);
}

Errc code_of(const std::string& text) {
  try {
    (void)decode_ticket(text, "ticket");
  } catch (const Error& error) {
    return error.code();
  }
  return Errc::interrupted;  // none
}

TEST_CASE("a ticket comes back as it was written") {
  const Ticket ticket = decode_ticket(encode_ticket(sample_ticket()), "ticket");
  CHECK(ticket.save.step == 1000);
  CHECK(ticket.save.rank == 3);
  CHECK(ticket.save.world_size == 8);
  CHECK(ticket.save.attempt == 2);
  CHECK(ticket.save.resumed_from == 990);
  CHECK(ticket.save.meta == sample_ticket().save.meta);
  CHECK(ticket.save.encode == Encode::best);
  CHECK(ticket.save.base == BaseChoice::step);
  CHECK(ticket.save.base_step == 990);
  CHECK_FALSE(ticket.save.check);
  CHECK(ticket.save.fixed_time == -5);
  CHECK(ticket.created_ns == sample_ticket().created_ns);
  CHECK(ticket.raw_bytes == 1U << 30U);
  CHECK(ticket.implied_directories == sample_ticket().implied_directories);
}

TEST_CASE("a ticket that isn't what it should be is refused") {
  CHECK(code_of("") == Errc::damaged);
  CHECK(code_of("{}") == Errc::damaged);
  std::string flipped = encode_ticket(sample_ticket());
  flipped[flipped.find("1000")] = '2';
  CHECK(code_of(flipped) == Errc::damaged);
  CHECK(code_of(with("format", "ckpt-manifest")) == Errc::damaged);
  CHECK(code_of(with("version", {99, 0})) == Errc::unsupported);
  CHECK(code_of(with("step", 10'000'000'000)) == Errc::damaged);
  CHECK(code_of(with("step", -1)) == Errc::damaged);
  CHECK(code_of(with("step", "1000")) == Errc::damaged);
  CHECK(code_of(with("rank", 8)) == Errc::damaged);
  CHECK(code_of(with("world_size", 0)) == Errc::damaged);
  CHECK(code_of(with("encode", "slow")) == Errc::damaged);
  CHECK(code_of(with("check", 1)) == Errc::damaged);
  CHECK(code_of(with("meta", {{"loss", 1}})) == Errc::damaged);
  CHECK(code_of(with("implied_directories", {"../x"})) == Errc::damaged);
  CHECK(code_of(with("implied_directories", {"a%zz"})) == Errc::damaged);
}

TEST_CASE("an intent comes back as it was written, and none that leads elsewhere is believed") {
  const Intent intent{.by_moving = true, .moves = {{.from = "/in/\n\xfe", .to = "a/b"}, {.from = "/x", .to = ""}}};
  const Intent back = decode_intent(encode_intent(intent), "intent");
  CHECK(back.by_moving);
  REQUIRE(back.moves.size() == 2);
  CHECK(back.moves[0].from == intent.moves[0].from);
  CHECK(back.moves[1].to.empty());
  for (const Move& bad : {Move{.from = "relative", .to = "a"}, Move{.from = "/x", .to = "../a"},
                          Move{.from = "/x", .to = "/etc/passwd"}, Move{.from = "/x", .to = "a//b"}}) {
    CHECK_THROWS_AS((void)decode_intent(encode_intent({.by_moving = true, .moves = {bad}}), "intent"), Error);
  }
}

TEST_CASE("entry names sort as they're drained, and no other name is taken for one") {
  const EntryName name{.set = {.step = 1000, .world_size = 8, .attempt = 2}, .rank = 3, .number = 17};
  CHECK(to_string(name) == "0000001000.00003-of-00008.2.17");
  const auto back = parse_entry_name(to_string(name));
  REQUIRE(back);
  CHECK(back->set == name.set);
  CHECK(back->rank == 3);
  CHECK(back->number == 17);
  for (const char* bad : {"", "0000001000", "0000001000.00003-of-00003.2.1", "0000001000.00003-of-00008.2",
                          "0000001000.00003-of-00008.2.x", "1000.0-of-1.0.0", "0000001000.00003-of-00008.-2.1"}) {
    CHECK_FALSE(parse_entry_name(bad));
  }
}

TEST_CASE("percent signs bring every byte through ASCII") {
  std::string all;
  for (int i = 1; i < 256; ++i) all += static_cast<char>(i);
  const std::string text = percent_encode(all);
  CHECK(text.find_first_of("\"\\ \n\xff") == std::string::npos);
  CHECK(percent_decode(text) == all);
  CHECK(percent_decode("plain/path.pt") == "plain/path.pt");
  for (const char* bad : {"%", "%1", "a%", "%g0", "%0g", "%+1"}) CHECK_FALSE(percent_decode(bad));
}

TEST_CASE("inputs move in and back, all of them or none") {
  const unit_test::Scratch scratch;
  const std::string a = scratch.path() + "/a", b = scratch.path() + "/b", tree = scratch.path() + "/tree";
  os::write_small_file(a, "A");
  os::write_small_file(b, "B");
  const std::vector<Move> moves = {{.from = a, .to = "x/a"}, {.from = b, .to = "b"}};
  REQUIRE(move_in(moves, tree));
  CHECK(all_moved(moves, tree));
  CHECK_FALSE(os::exists(a));
  CHECK(move_back(moves, tree) == MovedBack::all);
  CHECK(os::read_small_file(a, 10) == "A");
  CHECK(os::read_small_file(b, 10) == "B");
  CHECK_FALSE(all_moved(moves, tree));

  REQUIRE(move_in(moves, tree));
  os::write_small_file(a, "new");
  CHECK(move_back(moves, tree) == MovedBack::stuck);
  CHECK(os::read_small_file(a, 10) == "new");
  CHECK(os::read_small_file(tree + "/x/a", 10) == "A");
  CHECK(os::read_small_file(b, 10) == "B");
}

TEST_CASE("a move whose second input is gone takes the first one back") {
  const unit_test::Scratch scratch;
  const std::string a = scratch.path() + "/a", tree = scratch.path() + "/tree";
  os::write_small_file(a, "A");
  const std::vector<Move> moves = {{.from = a, .to = "a"}, {.from = scratch.path() + "/nothing", .to = "b"}};
  CHECK_THROWS_AS((void)move_in(moves, tree), Error);
  CHECK(os::read_small_file(a, 10) == "A");
}

format::FileEntry entry(format::EntryType type, std::string path, std::string target = {}) {
  format::FileEntry entry;
  entry.type = type;
  entry.path = std::move(path);
  entry.target = std::move(target);
  entry.mode = 0755;
  return entry;
}

TEST_CASE("a tree that is built never leaves its root") {
  using format::EntryType;
  const unit_test::Scratch scratch;
  os::write_small_file(scratch.path() + "/outside", "secret");
  TreeBuilder builder(scratch.path() + "/tree");
  for (const char* path : {"../x", "/etc/x", "a/../../x", "a//b", "", "."}) {
    CHECK_THROWS_AS((void)builder.create_file(entry(EntryType::file, path)), Error);
    CHECK_THROWS_AS(builder.add(entry(EntryType::directory, path)), Error);
  }
  for (const char* target : {"../outside", "/etc/passwd", "sub/../../outside"})
    CHECK_THROWS_AS(builder.add(entry(EntryType::symlink, "link", target)), Error);
  builder.add(entry(EntryType::directory, "sub"));
  builder.add(entry(EntryType::symlink, "loop", "sub"));
  CHECK_THROWS_AS((void)builder.create_file(entry(EntryType::file, "loop/x")), Error);
  CHECK_THROWS_AS(builder.add(entry(EntryType::hardlink, "hard", "../outside")), Error);
  CHECK_THROWS_AS((void)builder.create_file(entry(EntryType::file, "loop")), Error);
}

}  // namespace
}  // namespace ckpt::doors
