// SPDX-License-Identifier: Apache-2.0
// What travels through a queue as text or bytes: addresses, announcements, outcomes. Whoever can reach the queue can
// write them, so each flaw has to be seen.
#include "doors/announcement.hpp"
#include "doors/outcome.hpp"
#include "doors/redis_address.hpp"

#include <ckpt/error.hpp>

#include <doctest/doctest.h>
#include <functional>
#include <optional>

using namespace ckpt;
using namespace ckpt::doors;
using format::EntryType;
using format::FileEntry;

namespace {

Announcement sample() {
  Announcement announcement;
  announcement.ticket.save.step = 12;
  announcement.ticket.host = "node7";
  announcement.entries = {{.path = "d", .type = EntryType::directory, .mode = 0755, .mtime_ns = -5},
                          {.path = "d/a\xff", .mode = 0644, .size = 100, .mtime_ns = 17},
                          {.path = "d/b", .type = EntryType::symlink, .mode = 0777, .target = "../d/a\xff"},
                          {.path = "e", .type = EntryType::hardlink, .mode = 0644, .target = "d/a\xff"}};
  announcement.piece_size = 64;
  announcement.pieces = 2;
  announcement.bytes = 100;
  announcement.digest = xxh3_128(std::string_view("x"));
  announcement.stall_seconds = 0.25;
  announcement.wants_outcome = true;
  return announcement;
}

std::optional<Errc> error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.code();
  }
  return std::nullopt;
}

std::optional<Errc> error_of(const Announcement& announcement) {
  return error_of([&] { (void)decode_announcement(encode_announcement(announcement), "a"); });
}

}  // namespace

TEST_SUITE("announcement") {
  TEST_CASE("it comes back as it was") {
    const Announcement was = sample();
    const Announcement is = decode_announcement(encode_announcement(was), "a");
    CHECK(is.ticket.save.step == 12);
    CHECK(is.ticket.host == "node7");
    REQUIRE(is.entries.size() == was.entries.size());
    for (std::size_t i = 0; i < is.entries.size(); ++i) {
      CHECK(is.entries[i].path == was.entries[i].path);
      CHECK(is.entries[i].type == was.entries[i].type);
      CHECK(is.entries[i].mode == was.entries[i].mode);
      CHECK(is.entries[i].size == was.entries[i].size);
      CHECK(is.entries[i].mtime_ns == was.entries[i].mtime_ns);
      CHECK(is.entries[i].target == was.entries[i].target);
      CHECK_FALSE(is.entries[i].uid);
    }
    CHECK(is.piece_size == 64);
    CHECK(is.pieces == 2);
    CHECK(is.bytes == 100);
    CHECK(is.digest == was.digest);
    CHECK(is.stall_seconds == doctest::Approx(0.25));
    CHECK(is.wants_outcome);
  }

  TEST_CASE("owners travel where all entries have one") {
    Announcement announcement = sample();
    for (FileEntry& entry : announcement.entries) {
      entry.uid = 7;
      entry.gid = 8;
    }
    const Announcement is = decode_announcement(encode_announcement(announcement), "a");
    CHECK(is.entries[2].uid == 7U);
    CHECK(is.entries[3].gid == 8U);
  }

  TEST_CASE("each cut and each flipped bit is damage") {
    const Bytes whole = encode_announcement(sample());
    for (std::size_t size = 0; size < whole.size(); ++size) {
      CHECK(error_of([&] { (void)decode_announcement(ByteView(whole).first(size), "a"); }) == Errc::damaged);
    }
    for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
      Bytes flipped = whole;
      flipped[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
      CHECK(error_of([&] { (void)decode_announcement(flipped, "a"); }) == Errc::damaged);
    }
  }

  TEST_CASE("what is sealed and wrong is damage all the same") {
    const std::vector<std::function<void(Announcement&)>> changes = {
        [](Announcement& a) { a.entries[0].path = "../d"; },
        [](Announcement& a) { a.entries[1].path = "/etc/passwd"; },
        [](Announcement& a) { a.entries[1].path = "d"; },
        [](Announcement& a) { a.entries[0].type = EntryType::symlink; },
        [](Announcement& a) { a.entries[2].target = "../../x"; },
        [](Announcement& a) { a.entries[2].target = "/x"; },
        [](Announcement& a) { a.entries[2].target = std::string("x\0y", 3); },
        [](Announcement& a) { a.entries[2].target.clear(); },
        [](Announcement& a) { a.entries[1].target = "x"; },
        [](Announcement& a) { a.entries[3].target = "gone"; },
        [](Announcement& a) { a.entries[0].size = 1; },
        [](Announcement& a) { a.entries[1].mode = 010000; },
        [](Announcement& a) { a.entries[1].size = 101; },
        [](Announcement& a) { a.entries[1].size = UINT64_MAX; },
        [](Announcement& a) {
          a.entries = {{.path = "a", .size = UINT64_MAX}, {.path = "b", .size = 101}};
        },
        [](Announcement& a) { a.pieces = 3; },
        [](Announcement& a) { a.pieces = 0; },
        [](Announcement& a) { a.piece_size = 0; },
        [](Announcement& a) { a.piece_size = max_piece_size + 1; },
        [](Announcement& a) { a.bytes = max_pieces * max_piece_size + 1; },
        [](Announcement& a) { a.ticket.save.world_size = 0; },
        [](Announcement& a) { a.ticket.save.rank = 1; },
    };
    for (std::size_t i = 0; i < changes.size(); ++i) {
      CAPTURE(i);
      Announcement announcement = sample();
      changes[i](announcement);
      CHECK(error_of(announcement) == Errc::damaged);
    }
  }

  TEST_CASE("a state of more pieces than can be is refused where it's made") {
    Announcement announcement = sample();
    announcement.pieces = max_pieces + 1;
    CHECK(error_of(announcement) == Errc::invalid_argument);
  }

  TEST_CASE("a piece's digest says which piece of which shard it is") {
    const ByteView bytes = as_bytes("bytes");
    CHECK(piece_digest("a", 1, bytes) == piece_digest("a", 1, bytes));
    CHECK(piece_digest("a", 1, bytes) != piece_digest("a", 2, bytes));
    CHECK(piece_digest("a", 1, bytes) != piece_digest("b", 1, bytes));
  }

  TEST_CASE("outcomes come back as they were, and others are damage") {
    const Outcome failed = decode_outcome(encode_outcome({.state = SaveState::failed, .reason = "no \xff room"}), "o");
    CHECK(failed.state == SaveState::failed);
    CHECK(failed.reason.starts_with("no "));
    for (const SaveState state : {SaveState::written, SaveState::durable, SaveState::verified, SaveState::skipped}) {
      const Outcome outcome = decode_outcome(encode_outcome({.state = state, .id = "ab"}), "o");
      CHECK(outcome.state == state);
      CHECK(outcome.id == "ab");
    }
    CHECK(error_of([&] { (void)decode_outcome(encode_outcome({.state = SaveState::staged}), "o"); }) == Errc::damaged);
    CHECK(error_of([&] { (void)decode_outcome("{}", "o"); }) == Errc::damaged);
  }
}

TEST_SUITE("redis address") {
  TEST_CASE("all its parts") {
    const RedisAddress address =
        parse_redis_address("redis://me%40work@[::1]:7000/12?key=run%20a&password-file=/etc/pw");
    CHECK_FALSE(address.tls);
    CHECK(address.user == "me@work");
    CHECK(address.host == "::1");
    CHECK(address.port == 7000);
    CHECK(address.database == 12);
    CHECK(address.key == "run a");
    CHECK(address.password_file == "/etc/pw");
    CHECK(address.text() == "redis://me%40work@[::1]:7000/12?key=run%20a");
    const RedisAddress secret = parse_redis_address("rediss://host:1/?cacert=/ca&cert=/c&cert-key=/k&key=q");
    CHECK(secret.tls);
    CHECK(secret.ca_file == "/ca");
    CHECK(secret.database == 0);
  }

  TEST_CASE("what isn't one is said so, without what may be a password") {
    for (const char* text : {"",
                             "redis:/h:1?key=q",
                             "http://h:1?key=q",
                             "redis://h:1",
                             "redis://h:1?key=",
                             "redis://h?key=q",
                             "redis://h:?key=q",
                             "redis://h:0?key=q",
                             "redis://h:65536?key=q",
                             "redis://h:1x?key=q",
                             "redis://h:-1?key=q",
                             "redis://:1?key=q",
                             "redis://[::1:1?key=q",
                             "redis://[::1]?key=q",
                             "redis://::1:1?key=q",
                             "redis://h:1/x?key=q",
                             "redis://h:1/9999999?key=q",
                             "redis://h:1?key=q&key=r",
                             "redis://h:1?key=q&color=red",
                             "redis://h:1?key=%",
                             "redis://h:1?key=%0",
                             "redis://h:1?key=%00",
                             "redis://h:1?key=%zz",
                             "redis://@h:1?key=q",
                             "redis://h:1?key=q&cacert=/x",
                             "rediss://h:1?key=q&cert=/x",
                             "redis://h h:1?key=q",
                             "redis://me:secret@h:1?key=q"}) {
      CAPTURE(text);
      CHECK(error_of([&] { (void)parse_redis_address(text); }) == Errc::invalid_argument);
    }
    try {
      (void)parse_redis_address("redis://secret@h:x?key=q");
    } catch (const Error& error) {
      CHECK(std::string(error.what()).find("secret") == std::string::npos);
    }
    CHECK(error_of([&] { (void)parse_redis_address("redis://h:1?key=" + std::string(256, 'k')); }) ==
          Errc::invalid_argument);
  }
}
