// SPDX-License-Identifier: Apache-2.0
// What holds of every plan of a sync, on random pairs of stores.
#include "ops/sync_plan.hpp"

#include <ckpt/error.hpp>

#include <doctest/doctest.h>
#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace ckpt::ops {
namespace {

using format::BaseCheckpoint;
using transport::Inventory;
using transport::ReplicaCheckpoint;
using transport::ReplicaShard;

Digest digest(std::uint64_t n) { return xxh3_128(std::to_string(n)); }

ReplicaCheckpoint entry(std::uint64_t step, std::uint64_t content = 0) {
  return {.identity = {.id = digest(step * 10 + content), .step = step}, .stored_bytes = 1000, .bases = {}};
}

/// Committed and retired checkpoints that one store might hold.
class Stores {
 public:
  explicit Stores(unsigned seed) : random_(seed) {}
  bool chance(unsigned percent) { return random_() % 100 < percent; }

  Inventory store() {
    Inventory inventory{.is_store = true, .unreadable = {}, .checkpoints = {}, .shards = {}};
    std::vector<BaseCheckpoint> older;
    for (std::uint64_t step = 1; step <= 12; ++step) {
      if (chance(30)) continue;
      if (chance(8)) {
        inventory.unreadable.push_back(step);
        continue;
      }
      add(inventory, older, entry(step, random_() % 10 == 0 ? 1 : 0), false);
    }
    for (std::uint64_t step = 1; step <= 12; ++step) {
      if (chance(10)) add(inventory, older, entry(step, 2), true);
    }
    for (std::uint64_t step = 20; step < 23; ++step) {
      for (std::uint32_t rank = 0; rank < 3; ++rank) {
        if (chance(40))
          inventory.shards.push_back({.set = {.step = step, .world_size = 3, .attempt = 0},
                                      .rank = rank,
                                      .file = "shard",
                                      .size = 10,
                                      .digest = digest(step * 100 + rank)});
      }
    }
    return inventory;
  }

 private:
  void add(Inventory& inventory, std::vector<BaseCheckpoint>& older, ReplicaCheckpoint made, bool retired) {
    made.retired = retired;
    for (const BaseCheckpoint& base : older) {
      // Now and then one that isn't there any more.
      if (made.bases.size() < 2 && chance(15)) made.bases.push_back(chance(95) ? base : entry(99).identity);
    }
    older.push_back(made.identity);
    inventory.checkpoints.push_back(std::move(made));
  }

  std::mt19937 random_;
};

bool has(const Inventory& inventory, const BaseCheckpoint& identity) {
  return std::any_of(inventory.checkpoints.begin(), inventory.checkpoints.end(),
                     [&](const ReplicaCheckpoint& other) { return other.identity == identity; });
}

const ReplicaCheckpoint* committed(const Inventory& inventory, std::uint64_t step) {
  for (const ReplicaCheckpoint& other : inventory.checkpoints) {
    if (!other.retired && other.identity.step == step) return &other;
  }
  return nullptr;
}

/// The destination once all of a plan is done. Fails where a step of it couldn't be.
Inventory carried_out(const SyncPlan& plan, Inventory there, bool replace) {
  for (const BaseCheckpoint& identity : plan.retire) {
    const auto found =
        std::find_if(there.checkpoints.begin(), there.checkpoints.end(),
                     [&](const ReplicaCheckpoint& other) { return !other.retired && other.identity == identity; });
    REQUIRE(found != there.checkpoints.end());
    found->retired = true;
  }
  for (const ReplicaCheckpoint& sent : plan.send) {
    for (const BaseCheckpoint& base : sent.bases) REQUIRE(has(there, base));
    const auto* taken = sent.retired ? nullptr : committed(there, sent.identity.step);
    if (taken != nullptr) {
      REQUIRE(replace);
      REQUIRE(taken->identity != sent.identity);
      std::erase_if(there.checkpoints, [&](const auto& other) { return &other == taken; });
    }
    there.checkpoints.push_back(sent);
  }
  for (const std::uint64_t step : plan.remove) {
    REQUIRE(committed(there, step) != nullptr);
    std::erase_if(there.checkpoints, [&](const auto& other) { return !other.retired && other.identity.step == step; });
  }
  return there;
}

SyncRequest whole(const Inventory& source) { return {.chosen = source.checkpoints, .whole = true}; }

TEST_CASE("after every plan the destination holds what the source has, or a conflict says why not") {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    CAPTURE(seed);
    Stores stores(seed);
    const Inventory here = stores.store();
    const Inventory there = stores.store();
    SyncRequest request = whole(here);
    request.replace = stores.chance(50);
    request.remove = stores.chance(50);
    request.gather = stores.chance(50);
    const SyncPlan plan = plan_sync(request, here, there, "there");
    const Inventory after = carried_out(plan, there, request.replace);
    for (const ReplicaCheckpoint& wanted : here.checkpoints) {
      const auto* found = committed(after, wanted.identity.step);
      const bool is_there =
          wanted.retired ? has(after, wanted.identity) : found != nullptr && found->identity == wanted.identity;
      if (is_there) continue;
      const std::string text = std::to_string(wanted.identity.step);
      const bool is_told = std::any_of(plan.conflicts.begin(), plan.conflicts.end(), [&](const std::string& why) {
        return why.find("step " + text + " depends") != std::string::npos ||
               why.find("there@" + text + "'") != std::string::npos;
      });
      CHECK(is_told);
    }
    for (const std::uint64_t step : plan.remove) {
      CHECK(request.remove);
      CHECK(committed(here, step) == nullptr);
      CHECK(std::find(here.unreadable.begin(), here.unreadable.end(), step) == here.unreadable.end());
    }
    CHECK(plan.conflicts.size() >= here.unreadable.size());
    CHECK((request.gather || plan.shards.empty()));
    CHECK(plan.only_as_bases.empty());
  }
}

TEST_CASE("once a plan without conflicts is carried out there's nothing left to do") {
  unsigned tried = 0;
  for (unsigned seed = 0; seed < 3000; ++seed) {
    CAPTURE(seed);
    Stores stores(seed);
    const Inventory here = stores.store();
    const Inventory there = stores.store();
    SyncRequest request = whole(here);
    request.replace = true;
    request.remove = stores.chance(50);
    const SyncPlan plan = plan_sync(request, here, there, "there");
    if (!plan.conflicts.empty()) continue;
    ++tried;
    const SyncPlan again = plan_sync(request, here, carried_out(plan, there, true), "there");
    CHECK(again.send.empty());
    CHECK(again.retire.empty());
    CHECK(again.remove.empty());
  }
  CHECK(tried > 100);
}

TEST_CASE("a store is alike with itself") {
  for (unsigned seed = 0; seed < 300; ++seed) {
    Inventory here = Stores(seed).store();
    here.unreadable.clear();
    SyncRequest request = whole(here);
    request.remove = true;
    const SyncPlan plan = plan_sync(request, here, here, "there");
    CHECK(plan.send.empty());
    CHECK(plan.retire.empty());
    CHECK(plan.remove.empty());
    CHECK(plan.conflicts.empty());
  }
}

TEST_CASE("what is chosen alone brings its bases and nothing else") {
  for (unsigned seed = 0; seed < 1000; ++seed) {
    CAPTURE(seed);
    Stores stores(seed);
    const Inventory here = stores.store();
    if (here.checkpoints.empty()) continue;
    const ReplicaCheckpoint& chosen = here.checkpoints[seed % here.checkpoints.size()];
    const SyncPlan plan = plan_sync({.chosen = {chosen}}, here, Inventory{}, "there");
    (void)carried_out(plan, {}, false);
    if (!plan.conflicts.empty()) continue;
    REQUIRE(!plan.send.empty());
    CHECK(plan.send.back().identity == chosen.identity);
    CHECK(plan.only_as_bases.size() + 1 == plan.send.size());
    CHECK(plan.remove.empty());
  }
}

TEST_CASE("bases in a circle end") {
  ReplicaCheckpoint one = entry(1);
  ReplicaCheckpoint two = entry(2);
  one.bases = {two.identity};
  two.bases = {one.identity};
  const Inventory here{.is_store = true, .unreadable = {}, .checkpoints = {one, two}, .shards = {}};
  const SyncPlan plan = plan_sync(whole(here), here, Inventory{}, "there");
  CHECK(plan.send.empty());
  CHECK(!plan.conflicts.empty());
}

TEST_CASE("a chain that's deeper than any store's is refused before the stack ends") {
  Inventory here{.is_store = true, .unreadable = {}, .checkpoints = {}, .shards = {}};
  for (std::uint64_t step = 0; step < 100000; ++step) {
    here.checkpoints.push_back(entry(step));
    here.checkpoints.back().bases = {entry(step + 1).identity};
  }
  CHECK_THROWS_AS((void)plan_sync(whole(here), here, Inventory{}, "there"), Error);
}

TEST_CASE("a set that's complete there and not committed is offered again") {
  Inventory here;
  Inventory there;
  const ReplicaShard shard{
      .set = {.step = 1, .world_size = 1, .attempt = 0}, .rank = 0, .file = "s", .size = 1, .digest = digest(1)};
  here.shards = {shard};
  there.shards = {shard};
  CHECK(plan_sync({.chosen = {}, .gather = true}, here, there, "there").shards.size() == 1);
  there.shards.front().set.world_size = 2;
  here.shards = there.shards;
  CHECK(plan_sync({.chosen = {}, .gather = true}, here, there, "there").shards.empty());
}

TEST_CASE("a selector chooses what it names") {
  const Inventory here{.is_store = true, .unreadable = {}, .checkpoints = {entry(1), entry(5), entry(9)}, .shards = {}};
  const auto steps = [&](const Selector& which) {
    std::vector<std::uint64_t> found;
    for (const auto& chosen : choose_checkpoints(here, which, "here")) found.push_back(chosen.identity.step);
    return found;
  };
  using Steps = std::vector<std::uint64_t>;
  CHECK(steps({}) == Steps{1, 5, 9});
  CHECK(steps({.kind = Selector::Kind::step, .step = 5, .back = 0, .id_prefix = {}}) == Steps{5});
  CHECK(steps({.kind = Selector::Kind::latest, .step = 0, .back = 0, .id_prefix = {}}) == Steps{9});
  CHECK(steps({.kind = Selector::Kind::latest, .step = 0, .back = 2, .id_prefix = {}}) == Steps{1});
  CHECK(steps({.kind = Selector::Kind::id, .step = 0, .back = 0, .id_prefix = to_hex(entry(5).identity.id)}) ==
        Steps{5});
  CHECK_THROWS_AS((void)steps({.kind = Selector::Kind::latest, .step = 0, .back = 3, .id_prefix = {}}), Error);
  CHECK_THROWS_AS((void)steps({.kind = Selector::Kind::step, .step = 6, .back = 0, .id_prefix = {}}), Error);
}

}  // namespace
}  // namespace ckpt::ops
