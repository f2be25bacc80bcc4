// SPDX-License-Identifier: Apache-2.0
// Publishing and committing: shards in any order, at once, twice, of other content, other attempts and other worlds.
// Whatever happens there is one complete checkpoint, or none.
#include "format/container_reader.hpp"
#include "os/small_file.hpp"
#include "store/attempts.hpp"
#include "store/pending_set.hpp"
#include "store_support.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <random>
#include <thread>

using namespace ckpt;
using namespace ckpt::store;
using namespace store_test;
using unit_test::Scratch;

namespace fs = std::filesystem;

TEST_SUITE("store commit") {
  TEST_CASE("one shard of one is a checkpoint at once, and nothing else is left") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    CHECK(publish(store, {.step = 5}, 0, "x") == Published::linked);
    const auto committed = commit_if_complete(store, {.set = {.step = 5}, .timings = {{"save", 1.0}}});
    REQUIRE(committed);
    CHECK(committed->manifest.step == 5);
    CHECK(committed->manifest.timings.at("save") == 1.0);
    CHECK(names_in(store.step_directory(5)) == Names{"manifest.json", "shard-00000-of-00001.ckpt"});
    CHECK(names_in(store.pending()) == Names{"tmp"});
    CHECK(names_in(store.scratch()).empty());
    CHECK(fs::hard_link_count(store.step_directory(5) + "/shard-00000-of-00001.ckpt") == 1);
    CHECK(content_of(store, 5, 0) == "x");
  }

  TEST_CASE("a manifest says what its containers say") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    publish(store, {.step = 5, .world_size = 2}, 1, "one");
    publish(store, {.step = 5, .world_size = 2}, 0, "zero");
    const auto committed = commit_if_complete(store, {.set = {.step = 5, .world_size = 2}});
    REQUIRE(committed);
    const format::Manifest& manifest = committed->manifest;
    REQUIRE(manifest.shards.size() == 2);
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      const format::ManifestShard& shard = manifest.shards[rank];
      const format::ContainerReader container(committed->shard_path(shard));
      CHECK(shard.rank == rank);
      CHECK(shard.size == fs::file_size(committed->shard_path(shard)));
      CHECK(shard.root == container.index().root);
      CHECK(shard.digest == container.digest());
      CHECK(shard.files == 1);
      CHECK(shard.raw_bytes == container.catalog().raw_bytes());
    }
    CHECK(manifest.meta.at("rank") == "0");
  }

  TEST_CASE("a set with a rank missing isn't committed, and says which are there") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    const SetKey set{.step = 5, .world_size = 3, .attempt = 0};
    publish(store, set, 2, "two");
    publish(store, set, 0, "zero");
    CHECK_FALSE(commit_if_complete(store, {.set = set}));
    CHECK(store.steps().empty());
    const auto sets = pending_sets(store);
    REQUIRE(sets.size() == 1);
    CHECK(sets[0].key == set);
    CHECK_FALSE(sets[0].complete());
    CHECK(sets[0].files.contains(0));
    CHECK_FALSE(sets[0].files.contains(1));
    CHECK(sets[0].files.contains(2));
  }

  TEST_CASE("ranks in any order and at once make one complete checkpoint") {
    std::mt19937 random(5);
    for (int round = 0; round < 8; ++round) {
      const Scratch scratch;
      const Store store = new_store(scratch);
      constexpr std::uint32_t world = 6;
      const SetKey set{.step = 9, .world_size = world, .attempt = 0};
      std::vector<std::uint32_t> ranks;
      // Each rank twice: a launcher that lost sight of one starts it again.
      for (std::uint32_t i = 0; i < 2 * world; ++i) ranks.push_back(i % world);
      std::shuffle(ranks.begin(), ranks.end(), random);
      std::atomic<int> committed = 0, failed = 0;
      std::vector<std::thread> threads;
      for (const std::uint32_t rank : ranks) {
        threads.emplace_back([&, rank] {
          try {
            publish(store, set, rank, "content of " + std::to_string(rank));
            if (commit_if_complete(store, {.set = set})) ++committed;
          } catch (const std::exception& error) {
            MESSAGE(std::string(error.what()));
            ++failed;
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      CHECK(failed == 0);
      CHECK(committed > 0);
      CHECK(store.steps() == std::vector<std::uint64_t>{9});
      const auto checkpoint = store.find(9);
      REQUIRE(checkpoint);
      CHECK(names_in(checkpoint->directory).size() == world + 1);
      for (std::uint32_t rank = 0; rank < world; ++rank) {
        CHECK(content_of(store, 9, rank) == "content of " + std::to_string(rank));
      }
      help_complete_sets(store);
      for (const SetContent& left : pending_sets(store)) CHECK(left.files.empty());
    }
  }

  TEST_CASE("the same shard again changes nothing, before the commit and after it") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    const SetKey set{.step = 5, .world_size = 2, .attempt = 0};
    CHECK(publish(store, set, 0, "x") == Published::linked);
    CHECK(publish(store, set, 0, "x") == Published::in_set);
    publish(store, set, 1, "y");
    const auto first = commit_if_complete(store, {.set = set});
    REQUIRE(first);
    CHECK(publish(store, set, 0, "x") == Published::committed);
    const auto again = commit_if_complete(store, {.set = set});
    REQUIRE(again);
    CHECK(again->manifest.id == first->manifest.id);
  }

  TEST_CASE("other content of the same rank is refused, before the commit and after it") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    const SetKey set{.step = 5, .world_size = 2, .attempt = 0};
    publish(store, set, 0, "x");
    CHECK(code_of([&] { publish(store, set, 0, "other"); }) == Errc::exists);
    publish(store, set, 1, "y");
    REQUIRE(commit_if_complete(store, {.set = set}));
    CHECK(code_of([&] { publish(store, set, 0, "other"); }) == Errc::exists);
    CHECK(content_of(store, 5, 0) == "x");
  }

  TEST_CASE("another world size at a committed step is refused") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    save(store, {.step = 5}, {"x"});
    CHECK(code_of([&] { publish(store, {.step = 5, .world_size = 2}, 0, "x"); }) == Errc::exists);
  }

  TEST_CASE("two world sizes at one step stay apart until one is complete, and then the other is refused") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    publish(store, {.step = 5, .world_size = 2}, 0, "x");
    publish(store, {.step = 5, .world_size = 3}, 0, "x");
    publish(store, {.step = 5, .world_size = 3}, 1, "y");
    publish(store, {.step = 5, .world_size = 2}, 1, "y");
    CHECK_FALSE(commit_if_complete(store, {.set = {.step = 5, .world_size = 3}}));
    CHECK(commit_if_complete(store, {.set = {.step = 5, .world_size = 2}}));
    CHECK(code_of([&] { publish(store, {.step = 5, .world_size = 3}, 2, "z"); }) == Errc::exists);
    CHECK(store.find(5)->manifest.world_size == 2);
  }

  TEST_CASE("with replace other content takes its place in a set") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    const SetKey set{.step = 5, .world_size = 2, .attempt = 0};
    publish(store, set, 0, "x");
    CHECK(publish(store, set, 0, "new", true) == Published::linked);
    publish(store, set, 1, "y");
    REQUIRE(commit_if_complete(store, {.set = set}));
    CHECK(content_of(store, 5, 0) == "new");
  }

  TEST_CASE("with replace other content takes its place in a checkpoint, and no file is left over") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    const Checkpoint old = save(store, {.step = 5}, {"x"});
    publish(store, {.step = 5}, 0, "new", true);
    const auto now = commit_if_complete(store, {.set = {.step = 5}, .timings = {}});
    REQUIRE(now);
    CHECK(now->manifest.id != old.manifest.id);
    CHECK(store.find(5)->manifest.id == now->manifest.id);
    CHECK(content_of(store, 5, 0) == "new");
    CHECK(names_in(store.step_directory(5)) == Names{"manifest.json", "shard-00000-of-00001.1.ckpt"});
    CHECK(pending_sets(store).empty());
  }

  TEST_CASE("with replace all ranks publish, also those whose content stays the same") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    const SetKey set{.step = 5, .world_size = 2, .attempt = 0};
    save(store, set, {"a", "b"});
    CHECK(publish(store, set, 0, "a", true) == Published::linked);
    CHECK_FALSE(commit_if_complete(store, {.set = set}));
    CHECK(content_of(store, 5, 1) == "b");
    CHECK(publish(store, set, 1, "new", true) == Published::linked);
    REQUIRE(commit_if_complete(store, {.set = set}));
    CHECK(content_of(store, 5, 0) == "a");
    CHECK(content_of(store, 5, 1) == "new");
    CHECK(names_in(store.pending()) == Names{"lock", "tmp"});
  }

  TEST_CASE("a set that replaces and whose writer died is completed by the next writer") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    save(store, {.step = 5}, {"x"});
    publish(store, {.step = 5}, 0, "new", true);
    help_complete_sets(store);
    CHECK(content_of(store, 5, 0) == "new");
    CHECK(pending_sets(store).empty());
  }

  TEST_CASE("a manifest that a dead writer left in a set doesn't hide a shard that was published after it") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    publish(store, {.step = 5}, 0, "x");
    const std::string set = store.pending() + "/" + set_name({.step = 5});
    const auto committed = commit_if_complete(store, {.set = {.step = 5}});
    REQUIRE(committed);
    fs::rename(store.step_directory(5), set);  // as if the writer had died before the rename
    CHECK(publish(store, {.step = 5}, 0, "new", true) == Published::linked);
    REQUIRE(commit_if_complete(store, {.set = {.step = 5}}));
    if (content_of(store, 5, 0) == "x") {
      CHECK(publish(store, {.step = 5}, 0, "new", true) == Published::linked);
      REQUIRE(commit_if_complete(store, {.set = {.step = 5}}));
    }
    CHECK(content_of(store, 5, 0) == "new");
  }

  TEST_CASE("with replace a checkpoint may change its world size") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    save(store, {.step = 5, .world_size = 2}, {"a", "b"});
    const SetKey one{.step = 5, .world_size = 1, .attempt = 0};
    publish(store, one, 0, "all", true);
    REQUIRE(commit_if_complete(store, {.set = one, .timings = {}}));
    CHECK(content_of(store, 5, 0) == "all");
    CHECK(names_in(store.step_directory(5)).size() == 2);
  }

  TEST_CASE("a higher attempt bars a lower one from publishing and from committing") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    const SetKey set{.step = 5, .world_size = 1, .attempt = 1};
    open_attempt(store, 1);
    publish(store, set, 0, "x");
    open_attempt(store, 2);
    CHECK(highest_attempt(store) == 2);
    CHECK(code_of([&] { publish(store, {.step = 6, .world_size = 1, .attempt = 1}, 0, "x"); }) == Errc::exists);
    CHECK(code_of([&] { (void)commit_if_complete(store, {.set = set}); }) == Errc::exists);
    CHECK(code_of([&] { open_attempt(store, 1); }) == Errc::exists);
    CHECK(store.steps().empty());
    CHECK_NOTHROW(open_attempt(store, 2));
  }

  TEST_CASE("shards of two attempts never meet") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    publish(store, {.step = 5, .world_size = 2, .attempt = 0}, 0, "old");
    open_attempt(store, 1);
    publish(store, {.step = 5, .world_size = 2, .attempt = 1}, 1, "new");
    CHECK_FALSE(commit_if_complete(store, {.set = {.step = 5, .world_size = 2, .attempt = 1}}));
    publish(store, {.step = 5, .world_size = 2, .attempt = 1}, 0, "new");
    const auto committed = commit_if_complete(store, {.set = {.step = 5, .world_size = 2, .attempt = 1}});
    REQUIRE(committed);
    CHECK(committed->manifest.attempt == 1);
    CHECK(content_of(store, 5, 0) == "new");
  }

  TEST_CASE("a complete set whose writers died is committed by the next one") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    publish(store, {.step = 5, .world_size = 2}, 0, "x");
    publish(store, {.step = 5, .world_size = 2}, 1, "y");
    publish(store, {.step = 6, .world_size = 2}, 0, "x");
    help_complete_sets(store);
    CHECK(store.steps() == std::vector<std::uint64_t>{5});
  }

  TEST_CASE("a damaged shard in a set is replaced by a good one") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    const SetKey set{.step = 5, .world_size = 2, .attempt = 0};
    publish(store, set, 0, "x");
    const std::string path = store.pending() + "/" + set_name(set) + "/shard-00000-of-00002.ckpt";
    fs::permissions(path, fs::perms::owner_write, fs::perm_options::add);
    fs::resize_file(path, 100);
    publish(store, set, 1, "y");
    CHECK_THROWS_AS((void)commit_if_complete(store, {.set = set}), format::Damaged);
    CHECK(publish(store, set, 0, "x") == Published::linked);
    REQUIRE(commit_if_complete(store, {.set = set}));
    CHECK(content_of(store, 5, 0) == "x");
  }

  TEST_CASE("a container of another set isn't taken for one of this") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    publish(store, {.step = 5}, 0, "x");
    os::make_directory(store.pending() + "/" + set_name({.step = 6}));
    fs::rename(store.pending() + "/" + set_name({.step = 5}) + "/shard-00000-of-00001.ckpt",
               store.pending() + "/" + set_name({.step = 6}) + "/shard-00000-of-00001.ckpt");
    CHECK_THROWS_AS((void)commit_if_complete(store, {.set = {.step = 6}}), format::Damaged);
    CHECK(store.steps().empty());
  }

  TEST_CASE("a suspect shard makes a suspect checkpoint, which is never the latest") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    save(store, {.step = 5}, {"x"});
    publish(store, {.step = 6}, 0, "y", false, {{"suspect", "it is damaged"}, {"later", "a mark not known yet"}});
    const auto committed = commit_if_complete(store, {.set = {.step = 6}});
    REQUIRE(committed);
    CHECK(committed->manifest.marks.at("suspect") == "it is damaged");
    CHECK(committed->manifest.marks.at("later") == "a mark not known yet");
    CHECK(store.resolve({}).manifest.step == 5);
    CHECK(store.resolve({.kind = Selector::Kind::step, .step = 6}).manifest.step == 6);
  }
}
