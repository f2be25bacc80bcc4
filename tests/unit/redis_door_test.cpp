// SPDX-License-Identifier: Apache-2.0
// The queue door against a real Redis server: what goes in comes out once, whatever dies in between, and nothing of it
// stays in Redis.
#include "os/fd.hpp"
#include "redis_support.hpp"
#include "transport/redis_queue.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

using namespace ckpt;
using namespace ckpt::transport;
using namespace redis_test;
using unit_test::Scratch;

namespace {

using Milliseconds = std::chrono::milliseconds;

/// A queue with one accepted state of some pieces.
struct Queued {
  Scratch input;
  Scratch scratch;
  RedisServer server;
  Spy spy;
  RedisConnection connection{server.address(), {}};
  RedisQueue queue{connection, "q"};

  explicit Queued(std::size_t states = 1) {
    write_file(input / "state.bin", noise(5 * small_piece + 17, 3));
    for (std::size_t i = 0; i < states; ++i) send(i + 1);
  }

  Receipt send(std::uint64_t step = 7) {
    State state = state_of(input.path(), step);
    return outlet_of(server).hand_over(pack(state), spy);
  }

  /// The id of the oldest shard.
  std::string shard() const { return server.call({"XRANGE", "q", "-", "+", "COUNT", "1"}).at(0).at(1).at(1).text(); }

  void save_all(std::size_t count) {
    const auto inlet = inlet_of(server, scratch);
    for (std::size_t i = 0; i < count; ++i) {
      const auto claim = claim_within(*inlet, spy);
      REQUIRE(claim);
      CHECK(seen_in(claim->fetch(spy)) == seen_in(input.path()));
      claim->done({.state = SaveState::durable});
    }
    CHECK(inlet->claim(spy) == nullptr);
    CHECK(server.keys() == 0);
  }
};

}  // namespace

TEST_SUITE("redis door") {
  TEST_CASE("a tree comes out as it went in, and nothing stays in Redis") {
    const Scratch input;
    const Scratch scratch;
    make_tree(input.path(), 20'000'000);
    RedisServer server;
    Spy spy;
    State state = state_of(input.path());
    state.options.save.meta = {{"loss", "0.5"}};
    const Receipt receipt = outlet_of(server, max_piece_size).hand_over(pack(state), spy);
    CHECK(receipt.state == SaveState::staged);
    CHECK(receipt.how == "queue");
    CHECK(spy.warnings.empty());

    const auto inlet = inlet_of(server, scratch);
    const Backlog backlog = inlet->backlog();
    CHECK(backlog.saves == 1);
    CHECK(backlog.bytes == 20'070'011);
    const auto claim = inlet->claim(spy);
    REQUIRE(claim);
    CHECK(claim->ticket().save.step == 7);
    CHECK(claim->ticket().save.meta.at("loss") == "0.5");
    CHECK(claim->stall_seconds().value() > 0);
    const std::string tree = claim->fetch(spy);
    CHECK(seen_in(tree) == seen_in(input.path()));
    claim->done({.state = SaveState::durable});
    CHECK_FALSE(std::filesystem::exists(tree));
    CHECK(inlet->claim(spy) == nullptr);
    CHECK(server.keys() == 0);
  }

  TEST_CASE("a state of no bytes is one as well") {
    const Scratch input;
    const Scratch scratch;
    write_file(input / "empty", "");
    RedisServer server;
    Spy spy;
    State state = state_of(input.path());
    CHECK(outlet_of(server).hand_over(pack(state), spy).state == SaveState::staged);
    const auto inlet = inlet_of(server, scratch);
    const auto claim = inlet->claim(spy);
    REQUIRE(claim);
    CHECK(seen_in(claim->fetch(spy)) == seen_in(input.path()));
    claim->done({});
    CHECK(server.keys() == 0);
  }

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

  TEST_CASE("a cut connection in mid-state: the server goes on") {
    Queued queued;
    once_beyond(queued.spy, 2 * small_piece, [&] {
      (void)queued.server.call({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
    });
    queued.save_all(1);
  }

  TEST_CASE("Redis killed and started again in mid-state, while sending and while fetching") {
    Queued queued(0);
    once_beyond(queued.spy, 2 * small_piece, [&] { queued.server.restart(); });
    CHECK(queued.send().state == SaveState::staged);
    (void)queued.server.call({"DEL", "q:announced:" + queued.shard()});
    once_beyond(queued.spy, 2 * small_piece, [&] { queued.server.restart(); });
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

  TEST_CASE("a piece sent twice and an announcement said twice harm nothing") {
    Queued queued;
    const std::string shard = queued.shard();
    const std::string before = queued.server.call({"GET", "q:shard:" + shard + ":1"}).text();
    queued.queue.send_piece(shard, 1, {}, as_bytes("something else"), Milliseconds(1000));
    CHECK(queued.connection.receive().is_nil());
    CHECK(queued.server.call({"GET", "q:shard:" + shard + ":1"}).text() == before);
    CHECK(queued.server.call({"TTL", "q:shard:" + shard + ":1"}).number() == -1);
    (void)queued.server.call({"SET", "q:announced:" + shard, "1", "PX", "60000"});
    CHECK(queued.queue.announce(shard, 6, 5 * small_piece + 17, Milliseconds(1000), as_bytes("x")));
    CHECK(queued.server.call({"XLEN", "q"}).number() == 1);
    queued.queue.forget_announcement(shard);
    queued.save_all(1);
  }

  TEST_CASE("a piece that was altered or is missing is damage") {
    for (const std::string change : {"SET", "SETRANGE", "DEL", "APPEND", "other piece"}) {
      CAPTURE(change);
      Queued queued;
      const std::string piece = "q:shard:" + queued.shard() + ":3";
      const std::string other = queued.server.call({"GET", "q:shard:" + queued.shard() + ":2"}).text();
      if (change == "SET") (void)queued.server.call({"SET", piece, "short"});
      if (change == "SETRANGE") (void)queued.server.call({"SETRANGE", piece, "1000", "!"});
      if (change == "DEL") (void)queued.server.call({"DEL", piece});
      if (change == "APPEND") (void)queued.server.call({"APPEND", piece, "x"});
      if (change == "other piece") (void)queued.server.call({"SET", piece, other});
      const auto inlet = inlet_of(queued.server, queued.scratch);
      const auto claim = inlet->claim(queued.spy);
      REQUIRE(claim);
      CHECK(error_of([&] { (void)claim->fetch(queued.spy); }) == Errc::damaged);
    }
  }

  TEST_CASE("of two servers one gets the shard, for as long as it lives") {
    Queued queued;
    const auto first = inlet_of(queued.server, queued.scratch);
    const auto second = inlet_of(queued.server, queued.scratch);
    const auto claim = first->claim(queued.spy);
    REQUIRE(claim);
    std::this_thread::sleep_for(2 * quick_death);
    CHECK(second->claim(queued.spy) == nullptr);
    claim->done({});
    CHECK(queued.server.keys() == 0);
  }

  TEST_CASE("a dead server's shard is another's, and a late word of the dead one harms nothing") {
    Queued queued;
    const Delivery delivery = queued.queue.claim("dead", quick_death);
    REQUIRE(delivery.shard);
    const auto living = inlet_of(queued.server, queued.scratch);
    CHECK(living->claim(queued.spy) == nullptr);
    const auto claim = claim_within(*living, queued.spy, 3 * quick_death);
    REQUIRE(claim);
    CHECK_FALSE(queued.queue.keep(*delivery.shard, "dead"));
    CHECK(queued.queue.fail(*delivery.shard, "dead", "late", "", Milliseconds(1)) == Failure::not_ours);
    queued.queue.give_back(*delivery.shard, "dead", quick_death);
    CHECK(seen_in(claim->fetch(queued.spy)) == seen_in(queued.input.path()));
    SUBCASE("the living one is first") {
      claim->done({});
      CHECK_FALSE(queued.queue.settle(*delivery.shard, 6, "", Milliseconds(1)));
    }
    SUBCASE("the other one had it in the store already") {
      CHECK(queued.queue.settle(*delivery.shard, 6, "", Milliseconds(1)));
      CHECK(error_of([&] { (void)claim->fetch(queued.spy); }) == Errc::busy);
      CHECK_FALSE(claim->fail("too late"));
    }
    CHECK(queued.server.keys() == 0);
  }

  TEST_CASE("what one server after the other dies of goes to the dead letters") {
    Queued queued;
    for (int i = 0; i < 16; ++i) REQUIRE(queued.queue.claim("dead", Milliseconds(0)).shard);
    const auto inlet = inlet_of(queued.server, queued.scratch);
    CHECK(claim_within(*inlet, queued.spy, 3 * quick_death) == nullptr);
    CHECK(inlet->backlog().dead_letters == 1);
    CHECK(inlet->backlog().saves == 0);
  }

  TEST_CASE("a released shard is another's at once, or after a pause if there was a reason") {
    Queued queued;
    const auto first = inlet_of(queued.server, queued.scratch);
    const auto second = inlet_of(queued.server, queued.scratch);
    for (int i = 0; i < 40; ++i) {
      const auto claim = (i % 2 == 0 ? first : second)->claim(queued.spy);
      REQUIRE(claim);
      if (i % 3 > 0) claim->release("");  // else it's let go of without a word
    }
    for (int i = 0; i < 3; ++i) {
      const auto locked_out = claim_within(*first, queued.spy, 3 * quick_death);
      REQUIRE(locked_out);
      locked_out->release("the store is locked");
      CHECK(second->claim(queued.spy) == nullptr);
    }
    const auto claim = claim_within(*second, queued.spy, 3 * quick_death);
    REQUIRE(claim);
    claim->done({});
    CHECK(queued.server.keys() == 0);
  }

  TEST_CASE("what fails twice goes to the dead letters with its reason, and can be tried again from there") {
    Queued queued;
    const std::string shard = queued.shard();
    const auto inlet = inlet_of(queued.server, queued.scratch);
    CHECK_FALSE(inlet->claim(queued.spy)->fail("once"));
    CHECK(inlet->claim(queued.spy)->fail("twice"));
    CHECK(inlet->claim(queued.spy) == nullptr);
    CHECK(inlet->backlog().dead_letters == 1);
    CHECK(inlet->backlog().bytes == 0);
    const RedisValue letters = queued.server.call({"XRANGE", "q:dead", "-", "+"});
    CHECK(letters.at(0).at(1).at(1).text() == shard);
    CHECK(letters.at(0).at(1).at(3).text() == "twice");
    (void)queued.server.call({"XADD", "q", "*", "shard", shard});
    (void)queued.server.call({"DEL", "q:dead"});
    queued.save_all(1);
  }

  TEST_CASE("many states by several producers and servers at once, each taken once") {
    constexpr std::size_t producers = 3;
    constexpr std::size_t each = 5;
    Queued queued(0);
    std::vector<std::thread> threads;
    for (std::size_t p = 0; p < producers; ++p) {
      threads.emplace_back([&, p] {
        Spy spy;
        for (std::size_t i = 0; i < each; ++i) {
          State state = state_of(queued.input.path(), p * each + i);
          (void)outlet_of(queued.server).hand_over(pack(state), spy);
        }
      });
    }
    std::mutex mutex;
    std::vector<std::uint64_t> steps;
    for (int s = 0; s < 2; ++s) {
      threads.emplace_back([&] {
        Spy spy;
        const auto inlet = inlet_of(queued.server, queued.scratch);
        while (true) {
          const auto claim = claim_within(*inlet, spy, Milliseconds(1500));
          if (claim == nullptr) return;
          (void)claim->fetch(spy);
          const std::lock_guard lock(mutex);
          steps.push_back(claim->ticket().save.step);
          claim->done({});
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::sort(steps.begin(), steps.end());
    REQUIRE(steps.size() == producers * each);
    for (std::size_t i = 0; i < steps.size(); ++i) CHECK(steps[i] == i);
    CHECK(queued.server.keys() == 0);
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
    SUBCASE("full") {
      (void)queued.server.call({"CONFIG", "SET", "maxmemory", "1300kb"});
      CHECK(error_of([&] { (void)outlet_of(queued.server).hand_over(pack(state), queued.spy); }) == Errc::busy);
      CHECK(queued.server.keys() == 0);
    }
  }

  TEST_CASE("a full Redis can be emptied") {
    Queued queued;
    (void)queued.server.call({"CONFIG", "SET", "maxmemory", "1mb"});
    queued.save_all(1);
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

  TEST_CASE("hostile entries cost themselves only") {
    Queued queued(0);
    const auto add = [&](const std::vector<std::string_view>& fields) {
      std::vector<std::string_view> command = {"XADD", "q", "*"};
      command.insert(command.end(), fields.begin(), fields.end());
      (void)queued.server.call(command);
    };
    const std::string id(32, 'a');
    const std::string nothing(32, 'b');
    add({"nonsense", "1"});
    add({"shard", "../../etc/passwd"});
    add({"shard", std::string(1'000'000, 'x')});
    add({"shard", nothing});
    (void)queued.server.call({"SET", "q:shard:" + id, "not an announcement"});
    add({"shard", id});
    (void)queued.server.call({"HSET", "q:shards", "x", "not a number", "y", "1e400"});
    CHECK(queued.send().state == SaveState::staged);
    const auto inlet = inlet_of(queued.server, queued.scratch);
    const auto claim = claim_within(*inlet, queued.spy);
    REQUIRE(claim);
    CHECK(queued.spy.warnings.size() == 5);
    CHECK(seen_in(claim->fetch(queued.spy)) == seen_in(queued.input.path()));
    claim->done({});
    CHECK(inlet->backlog().dead_letters == 5);
    CHECK(inlet->backlog().saves == 0);
  }

  TEST_CASE("a key of another type is said plainly") {
    Queued queued(0);
    (void)queued.server.call({"SET", "q", "a text"});
    CHECK(error_of([&] { (void)queued.send(); }) == Errc::invalid_argument);
    CHECK(error_of([&] { (void)inlet_of(queued.server, queued.scratch)->claim(queued.spy); }) ==
          Errc::invalid_argument);
  }
}
