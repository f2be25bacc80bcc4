// SPDX-License-Identifier: Apache-2.0
// The queue door against a real Redis server: what goes in comes out once, whatever dies in between, and nothing of it
// stays in Redis.
#include "doors/redis_queue.hpp"
#include "redis_support.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

using namespace ckpt;
using namespace ckpt::doors;
using namespace redis_test;
using unit_test::Scratch;
using Milliseconds = std::chrono::milliseconds;

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

  TEST_CASE("a full Redis can be emptied") {
    Queued queued;
    (void)queued.server.call({"CONFIG", "SET", "maxmemory", "1mb"});
    queued.save_all(1);
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
}
