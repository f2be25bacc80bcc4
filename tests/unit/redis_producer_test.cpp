// SPDX-License-Identifier: Apache-2.0
// A queue's producer against a real Redis server: room, trouble, time limits, and what is left behind when it gives up.
#include "doors/redis_queue.hpp"
#include "os/fd.hpp"
#include "redis_support.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <chrono>
#include <string>
#include <thread>

using namespace ckpt;
using namespace ckpt::doors;
using namespace redis_test;
using unit_test::Scratch;
using Milliseconds = std::chrono::milliseconds;

TEST_SUITE("redis producer") {
  TEST_CASE("without an append-only file the producer is warned") {
    const Scratch input;
    write_file(input / "f", "x");
    RedisServer server({"--appendonly", "no"});
    Spy spy;
    State state = state_of(input.path());
    (void)outlet_of(server).hand_over(pack(state), spy);
    REQUIRE(spy.warnings.size() == 1);
    CHECK(spy.warnings[0].find("append-only") != std::string::npos);
  }

  TEST_CASE("a cut connection in mid-state: the producer goes on from what's missing") {
    Queued queued(0);
    once_beyond(queued.spy, 2 * small_piece, [&] {
      (void)queued.server.call({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
    });
    CHECK(queued.send().state == SaveState::staged);
    CHECK(queued.server.call({"XLEN", "q"}).number() == 1);
    (void)queued.server.call({"DEL", "q:announced:" + queued.shard()});
    queued.spy.at_progress = {};
    queued.save_all(1);
  }

  TEST_CASE("pieces that Redis forgot while the producer was sending are sent again") {
    Queued queued(0);
    once_beyond(queued.spy, 3 * small_piece, [&] { (void)queued.server.call({"FLUSHALL"}); });
    CHECK(queued.send().state == SaveState::staged);
    (void)queued.server.call({"DEL", "q:announced:" + queued.shard()});
    queued.spy.at_progress = {};
    queued.save_all(1);
  }

  TEST_CASE("a budget of bytes or saves: fail, wait in vain, wait until there's room") {
    for (const bool by_bytes : {true, false}) {
      CAPTURE(by_bytes);
      Queued queued;
      State state = state_of(queued.input.path(), 8);
      if (by_bytes) state.options.limit.bytes = 8 * small_piece;
      if (!by_bytes) state.options.limit.saves = 1;
      RedisOutlet outlet = outlet_of(queued.server);
      state.options.when_full = WhenFull::fail;
      CHECK(error_of([&] { (void)outlet.hand_over(pack(state), queued.spy); }) == Errc::busy);
      state.options.when_full = WhenFull::wait;
      state.options.timeout_seconds = 0.2;
      CHECK(error_of([&] { (void)outlet.hand_over(pack(state), queued.spy); }) == Errc::busy);
      state.options.when_full = WhenFull::skip;
      CHECK(error_of([&] { (void)outlet.hand_over(pack(state), queued.spy); }) == Errc::invalid_argument);
      CHECK(queued.server.call({"HLEN", "q:shards"}).number() == 1);

      state.options.when_full = WhenFull::wait;
      state.options.timeout_seconds = 10;
      std::thread server([&] {
        std::this_thread::sleep_for(Milliseconds(200));
        Spy spy;
        inlet_of(queued.server, queued.scratch)->claim(spy)->done({});
      });
      CHECK(outlet.hand_over(pack(state), queued.spy).state == SaveState::staged);
      server.join();
      queued.save_all(1);
    }
  }

  TEST_CASE("one alone is let in, however large") {
    Queued queued(0);
    State state = state_of(queued.input.path());
    state.options.limit = {.bytes = 1, .saves = 0};
    state.options.when_full = WhenFull::fail;
    CHECK(outlet_of(queued.server).hand_over(pack(state), queued.spy).state == SaveState::staged);
  }

  TEST_CASE("a producer that gives up leaves nothing") {
    Queued queued(0);
    once_beyond(queued.spy, 2 * small_piece, [&] { queued.spy.stop = true; });
    CHECK(error_of([&] { (void)queued.send(); }) == Errc::interrupted);
    CHECK(queued.server.call({"EXISTS", "q", "q:shards", "q:uploads"}).number() == 0);
    // Redis may read what was under way after it heard that it's no longer wanted.
    const RedisValue late = queued.server.call({"KEYS", "*"});
    for (const RedisValue& key : late.items()) CHECK(queued.server.call({"PTTL", key.text()}).number() > 0);
  }

  TEST_CASE("what a dead producer sent goes by itself, and its place in the budget too") {
    Queued queued(0);
    REQUIRE(queued.queue.reserve("0123", 100, {}, Milliseconds(200)));
    queued.queue.send_piece("0123", 0, {}, as_bytes("half a state"), Milliseconds(200));
    (void)queued.connection.receive();
    CHECK_FALSE(queued.queue.reserve("4567", 1, {.bytes = 100}, Milliseconds(200)));
    queued.queue.renew("0123", 1, Milliseconds(400));
    std::this_thread::sleep_for(Milliseconds(300));
    CHECK_FALSE(queued.queue.reserve("4567", 1, {.bytes = 100}, Milliseconds(200)));
    std::this_thread::sleep_for(Milliseconds(300));
    CHECK(queued.queue.reserve("4567", 1, {.bytes = 100}, Milliseconds(1)));
    std::this_thread::sleep_for(Milliseconds(50));
    CHECK_FALSE(queued.queue.claim("any", quick_death).shard);
    CHECK(queued.server.keys() == 0);
  }

  TEST_CASE("a slow producer renews its lease") {
    Queued queued(0);
    queued.spy.at_progress = [](std::uint64_t) { std::this_thread::sleep_for(Milliseconds(120)); };
    State state = state_of(queued.input.path());
    CHECK(outlet_of(queued.server, small_piece, Milliseconds(400)).hand_over(pack(state), queued.spy).state ==
          SaveState::staged);
    queued.spy.at_progress = {};
    queued.save_all(1);
  }

  TEST_CASE("an input that is open for writing, or changes, is busy and leaves nothing") {
    Queued queued(0);
    SUBCASE("open") {
      const os::Fd writer = os::open(queued.input / "state.bin", O_WRONLY);
      CHECK(error_of([&] { (void)queued.send(); }) == Errc::busy);
    }
    SUBCASE("changed") {
      State state = state_of(queued.input.path());
      const Parcel& parcel = pack(state);
      write_file(queued.input / "state.bin", noise(5 * small_piece + 17, 4));
      CHECK(error_of([&] { (void)outlet_of(queued.server).hand_over(parcel, queued.spy); }) == Errc::busy);
    }
    SUBCASE("changed while it's read") {
      once_beyond(queued.spy, small_piece, [&] {
        // With its old time, which only the inode's own tells from before.
        write_file(queued.input / "state.bin", noise(5 * small_piece + 17, 4));
      });
      CHECK(error_of([&] { (void)queued.send(); }) == Errc::busy);
    }
    CHECK(queued.server.keys() == 0);
  }

  TEST_CASE("a producer that waits hears what became of its state") {
    Queued queued(0);
    State state = state_of(queued.input.path());
    state.options.until_durable = true;
    state.options.timeout_seconds = 5;
    Receipt receipt;
    std::thread producer([&] {
      Spy spy;
      receipt = outlet_of(queued.server).hand_over(pack(state), spy);
    });
    {
      const auto inlet = inlet_of(queued.server, queued.scratch);
      const auto claim = claim_within(*inlet, queued.spy);
      SUBCASE("durable") {
        claim->done({.state = SaveState::durable, .id = "0123"});
        producer.join();
        CHECK(receipt.state == SaveState::durable);
        CHECK(receipt.id == "0123");
      }
      SUBCASE("failed") {
        CHECK_FALSE(claim->fail("for a reason"));
        CHECK(inlet->claim(queued.spy)->fail("for another reason"));
        producer.join();
        CHECK(receipt.state == SaveState::failed);
        CHECK(receipt.reason == "for another reason");
        (void)queued.server.call({"UNLINK", "q:dead"});
      }
    }
    CHECK(queued.server.call({"EXISTS", "q"}).number() == 0);
    state.options.timeout_seconds = 0.2;
    receipt = outlet_of(queued.server).hand_over(pack(state), queued.spy);
    CHECK(receipt.state == SaveState::staged);
    CHECK_FALSE(receipt.reason.empty());
  }

  TEST_CASE("a server that isn't there, or a Redis that is full, is busy in the given time") {
    Queued queued(0);
    State state = state_of(queued.input.path());
    state.options.timeout_seconds = 0.3;
    SUBCASE("not there") {
      queued.server.kill();
      CHECK(error_of([&] { (void)outlet_of(queued.server).hand_over(pack(state), queued.spy); }) == Errc::busy);
      CHECK(error_of([&] { (void)inlet_of(queued.server, queued.scratch)->claim(queued.spy); }) == Errc::busy);
    }
    SUBCASE("hanging") {
      queued.server.hang();
      const auto begin = std::chrono::steady_clock::now();
      CHECK(error_of([&] { (void)outlet_of(queued.server).hand_over(pack(state), queued.spy); }) == Errc::busy);
      CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(8));
    }
    SUBCASE("full") {
      (void)queued.server.call({"CONFIG", "SET", "maxmemory", "1300kb"});
      CHECK(error_of([&] { (void)outlet_of(queued.server).hand_over(pack(state), queued.spy); }) == Errc::busy);
      CHECK(queued.server.keys() == 0);
    }
  }

  TEST_CASE("passwords and databases") {
    Queued queued(0);
    (void)queued.server.call({"CONFIG", "SET", "requirepass", "open sesame"});
    State state = state_of(queued.input.path());
    RedisAddress address = queued.server.address();
    address.database = 3;
    CHECK(error_of([&] { (void)RedisOutlet(address, "").hand_over(pack(state), queued.spy); }) ==
          Errc::invalid_argument);
    CHECK(error_of([&] { (void)RedisOutlet(address, "wrong").hand_over(pack(state), queued.spy); }) ==
          Errc::invalid_argument);
    CHECK(RedisOutlet(address, "open sesame").hand_over(pack(state), queued.spy).state == SaveState::staged);
    write_file(queued.scratch / "password", "open sesame\n");
    address.password_file = queued.scratch / "password";
    address.user = "default";
    RedisInlet inlet(address, "", queued.scratch.path());
    const auto claim = inlet.claim(queued.spy);
    REQUIRE(claim);
    claim->done({});
  }

  TEST_CASE("TLS that isn't there, on this side or the other, is said so") {
    Queued queued(0);
    State state = state_of(queued.input.path());
    state.options.timeout_seconds = 0.2;
    RedisAddress address = queued.server.address();
    address.tls = true;
    const auto code = error_of([&] { (void)RedisOutlet(address, "").hand_over(pack(state), queued.spy); });
    CHECK((code == Errc::unsupported || code == Errc::busy));
  }

  TEST_CASE("a key of another type is said plainly") {
    Queued queued(0);
    (void)queued.server.call({"SET", "q", "a text"});
    CHECK(error_of([&] { (void)queued.send(); }) == Errc::invalid_argument);
    CHECK(error_of([&] { (void)inlet_of(queued.server, queued.scratch)->claim(queued.spy); }) ==
          Errc::invalid_argument);
  }
}
