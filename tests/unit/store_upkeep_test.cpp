// SPDX-License-Identifier: Apache-2.0
// Opening, resolving, retiring, swapping, and cleaning up after the dead without touching the living.
#include "format/damaged.hpp"
#include "format/sealed_json.hpp"
#include "os/file_lock.hpp"
#include "store/attempts.hpp"
#include "store/leftovers.hpp"
#include "store/retire.hpp"
#include "store/swap.hpp"
#include "store/verify_records.hpp"
#include "store_support.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

using namespace ckpt;
using namespace ckpt::store;
using namespace store_test;
using unit_test::Scratch;

namespace fs = std::filesystem;

namespace {

void touch(const std::string& path, std::chrono::hours age = {}) {
  format_test::write_file(path, {});
  fs::last_write_time(path, fs::file_time_type::clock::now() - age);
}

Selector step_of(std::uint64_t step) {
  return {.kind = Selector::Kind::step, .step = step, .back = 0, .id_prefix = {}};
}
Selector latest(std::uint64_t back = 0) {
  return {.kind = Selector::Kind::latest, .step = 0, .back = back, .id_prefix = {}};
}
Selector id_of(const std::string& prefix) {
  return {.kind = Selector::Kind::id, .step = 0, .back = 0, .id_prefix = prefix};
}

}  // namespace

TEST_SUITE("store opening") {
  TEST_CASE("what isn't a store is not found") {
    const Scratch scratch;
    CHECK(code_of([&] { (void)Store::open(scratch / "none"); }) == Errc::not_found);
    CHECK(code_of([&] { (void)Store::open(scratch.path()); }) == Errc::not_found);
    CHECK(code_of([&] { (void)Store::open_for_writing(scratch / "none", false); }) == Errc::not_found);
  }

  TEST_CASE("a store is made in an empty directory, and not among other things") {
    const Scratch scratch;
    fs::create_directory(scratch / "empty");
    CHECK_NOTHROW((void)Store::open_for_writing(scratch / "empty", true));
    CHECK_NOTHROW((void)Store::open_for_writing(scratch / "deep/er", true));
    fs::create_directory(scratch / "full");
    touch(scratch / "full/thesis.tex");
    CHECK(code_of([&] { (void)Store::open_for_writing(scratch / "full", true); }) == Errc::exists);
    CHECK(names_in(scratch / "full") == Names{"thesis.tex"});
  }

  TEST_CASE("many processes may make one store at once") {
    const Scratch scratch;
    std::atomic<int> failed = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&] {
        try {
          (void)Store::open_for_writing(scratch / "a/b/store", true);
        } catch (const std::exception& error) {
          MESSAGE(error.what());
          ++failed;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(failed == 0);
    CHECK(names_in(scratch / "a/b/store") == Names{".pending", ".pins", "ckpt-store.json"});
  }

  TEST_CASE("a store whose description is damaged is refused") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    format_test::write_file(store.sub("ckpt-store.json"), as_bytes("{}"));
    CHECK(code_of([&] { (void)Store::open(store.path()); }) == Errc::damaged);
    CHECK(code_of([&] { (void)Store::open_for_writing(store.path(), true); }) == Errc::damaged);
  }

  TEST_CASE("a checkpoint without a manifest, or with one of another step, is damaged") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    save(store, {.step = 5}, {"x"});
    fs::rename(store.step_directory(5), store.step_directory(6));
    CHECK(code_of([&] { (void)store.find(6); }) == Errc::damaged);
    fs::remove(store.step_directory(6) + "/manifest.json");
    CHECK(code_of([&] { (void)store.find(6); }) == Errc::damaged);
    CHECK_FALSE(store.find(7));
  }
}

TEST_SUITE("store resolving") {
  TEST_CASE("latest counts back over unmarked checkpoints") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    CHECK(code_of([&] { (void)store.resolve(latest()); }) == Errc::not_found);
    for (const std::uint64_t step : {10U, 30U, 20U}) save(store, {.step = step}, {std::to_string(step)});
    publish(store, {.step = 40}, 0, "x", false, {{"suspect", "why"}});
    REQUIRE(commit_if_complete(store, {.set = {.step = 40}}));
    CHECK(store.resolve({}).manifest.step == 30);
    CHECK(store.resolve(latest()).manifest.step == 30);
    CHECK(store.resolve(latest(2)).manifest.step == 10);
    CHECK(code_of([&] { (void)store.resolve(latest(3)); }) == Errc::not_found);
    CHECK(store.resolve(step_of(40)).manifest.step == 40);
    CHECK(code_of([&] { (void)store.resolve(step_of(41)); }) == Errc::not_found);
    CHECK(store.unmarked(nullptr) == std::vector<std::uint64_t>{30, 20, 10});
  }

  TEST_CASE("a damaged manifest ends the search for the latest, and is passed over by the list") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    save(store, {.step = 10}, {"a"});
    save(store, {.step = 20}, {"b"});
    format_test::write_file(store.step_directory(20) + "/manifest.json", as_bytes("{"));
    CHECK(code_of([&] { (void)store.resolve(latest()); }) == Errc::damaged);
    std::vector<Store::Skipped> skipped;
    CHECK(store.unmarked(&skipped) == std::vector<std::uint64_t>{10});
    REQUIRE(skipped.size() == 1);
    CHECK(skipped[0].step == 20);
  }

  TEST_CASE("an id prefix names one checkpoint, also a retired one") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    const Checkpoint a = save(store, {.step = 10}, {"a"});
    const Checkpoint b = save(store, {.step = 20}, {"b"});
    CHECK(store.resolve(id_of(to_hex(b.manifest.id).substr(0, 8))).manifest.step == 20);
    open_attempt(store, 1);
    CHECK(retire_newer(store, 10, 1) == 1);
    const Checkpoint found = store.resolve(id_of(to_hex(b.manifest.id)));
    CHECK(found.retired);
    CHECK(found.manifest.step == 20);
    CHECK(code_of([&] { (void)store.resolve(id_of("00000000000000000000000000000000")); }) == Errc::not_found);
    CHECK(store.resolve(id_of(to_hex(a.manifest.id).substr(0, 4))).manifest.step == 10);
  }

  TEST_CASE("one id at two steps is no contradiction") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    const Checkpoint a = save(store, {.step = 10}, {"same"});
    const Checkpoint b = save(store, {.step = 20}, {"same"});
    CHECK(a.manifest.id == b.manifest.id);
    CHECK_NOTHROW((void)store.resolve(id_of(to_hex(a.manifest.id))));
  }
}

TEST_SUITE("store retiring") {
  TEST_CASE("what is newer and of a lower attempt is retired, once") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    for (const std::uint64_t step : {10U, 20U, 30U}) save(store, {.step = step}, {std::to_string(step)});
    publish(store, {.step = 15, .world_size = 2}, 0, "x");
    publish(store, {.step = 40, .world_size = 2}, 0, "x");
    open_attempt(store, 1);
    save(store, {.step = 25, .world_size = 1, .attempt = 1}, {"new"});
    CHECK(retire_newer(store, 15, 1) == 3);
    CHECK(retire_newer(store, 15, 1) == 0);
    CHECK(store.steps() == std::vector<std::uint64_t>{10, 25});
    const auto sets = pending_sets(store);
    REQUIRE(sets.size() == 1);
    CHECK(sets[0].key.step == 15);
    CHECK(store.retired_directories().size() == 2);
    CHECK(names_in(store.retired()).back() == "set-0000000040.2.0");
  }

  TEST_CASE("a checkpoint with a damaged manifest doesn't keep the job from going back behind it") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    save(store, {.step = 10}, {"a"});
    save(store, {.step = 20}, {"b"});
    format_test::write_file(store.step_directory(20) + "/manifest.json", as_bytes("{"));
    open_attempt(store, 1);
    CHECK(retire_newer(store, 10, 1) == 1);
    CHECK(store.resolve(latest()).manifest.step == 10);
    CHECK(names_in(store.retired()) == Names{"0000000020-damaged"});
  }

  TEST_CASE("the same content retired twice keeps both") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    save(store, {.step = 20}, {"b"});
    open_attempt(store, 1);
    CHECK(retire_newer(store, 10, 1) == 1);
    save(store, {.step = 20, .world_size = 1, .attempt = 1}, {"b"});
    open_attempt(store, 2);
    CHECK(retire_newer(store, 10, 2) == 1);
    CHECK(store.retired_directories().size() == 2);
  }

  TEST_CASE("ranks that retire at once move each checkpoint once") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    for (std::uint64_t step = 1; step <= 10; ++step) save(store, {.step = step}, {std::to_string(step)});
    open_attempt(store, 1);
    std::atomic<std::size_t> moved = 0;
    std::atomic<int> failed = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 6; ++i) {
      threads.emplace_back([&] {
        try {
          moved += retire_newer(store, 4, 1);
        } catch (const std::exception& error) {
          MESSAGE(error.what());
          ++failed;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(failed == 0);
    CHECK(moved == 6);
    CHECK(store.steps() == std::vector<std::uint64_t>{1, 2, 3, 4});
    CHECK(store.retired_directories().size() == 6);
  }

  TEST_CASE("the highest attempt is known from marks, sets and checkpoints") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    CHECK(highest_attempt(store) == 0);
    open_attempt(store, 3);
    CHECK(highest_attempt(store) == 3);
    save(store, {.step = 1, .world_size = 1, .attempt = 3}, {"x"});
    publish(store, {.step = 2, .world_size = 2, .attempt = 4}, 0, "x");
    CHECK(highest_attempt(store) == 4);
    // A copy may come without .pending/.
    fs::remove_all(store.pending());
    CHECK(highest_attempt(store) == 3);
  }
}

TEST_SUITE("store leftovers") {
  TEST_CASE("a dead writer's files go, a living one's stay") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    std::string dead;
    {
      const os::TemporaryFile temporary(store.scratch(), 0644);
      dead = temporary.path();
    }
    touch(dead);
    touch(dead + "x");
    const os::TemporaryFile living(store.scratch(), 0644);
    clean_leftovers(store);
    CHECK_FALSE(fs::exists(dead));
    CHECK_FALSE(fs::exists(dead + "x"));
    CHECK(fs::exists(living.path()));
  }

  TEST_CASE("a file of another host goes after seven days, not before") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    touch(store.scratch() + "/tmp.elsewhere.1.0-abc", std::chrono::hours(24 * 6));
    touch(store.scratch() + "/tmp.elsewhere.2.0-abc", std::chrono::hours(24 * 8));
    clean_leftovers(store);
    CHECK(names_in(store.scratch()) == Names{"tmp.elsewhere.1.0-abc"});
  }

  TEST_CASE("what a dead writer left while it made the store goes, too") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    const std::string left = store.sub("tmp." + os::unique_name());
    touch(left);
    clean_leftovers(store);
    CHECK_FALSE(fs::exists(left));
  }

  TEST_CASE("a mark of a set that is gone goes") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    touch(store.pending() + "/0000000001.2.0.replace");
    clean_leftovers(store);
    CHECK(names_in(store.pending()) == Names{"tmp"});
  }

  TEST_CASE("a set without a shard goes, one with a shard stays") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    fs::create_directory(store.pending() + "/0000000001.2.0");
    publish(store, {.step = 2, .world_size = 2}, 0, "x");
    clean_leftovers(store);
    CHECK(names_in(store.pending()) == Names{"0000000002.2.0", "tmp"});
  }

  TEST_CASE("what a dead swap left in a checkpoint goes; a living one's stays") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    save(store, {.step = 5}, {"x"});
    const std::string left = store.step_directory(5) + "/shard-00000-of-00001.1.ckpt";
    touch(left);
    touch(store.pending() + "/swap-0000000005");
    {
      const os::FileLock lock(lock_path(store), std::chrono::milliseconds(0));
      clean_leftovers(store);
      CHECK(fs::exists(left));
    }
    clean_leftovers(store);
    CHECK_FALSE(fs::exists(left));
    CHECK_FALSE(fs::exists(store.pending() + "/swap-0000000005"));
    CHECK(content_of(store, 5, 0) == "x");
  }

  TEST_CASE("files that no manifest names aren't touched without a mark of a swap") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    save(store, {.step = 5}, {"x"});
    touch(store.step_directory(5) + "/notes.txt");
    clean_leftovers(store);
    CHECK(fs::exists(store.step_directory(5) + "/notes.txt"));
  }
}

TEST_SUITE("store records") {
  TEST_CASE("a verdict comes back, and takes the place of the one before") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    const Digest id = xxh3_128(std::string_view("x"));
    VerifyRecord record{.step = 5, .id = id, .verdict = Verdict::good, .level = "deep", .when = 0, .found = {}};
    CHECK(write_record(store, record));
    CHECK(verdict_of(read_verdicts(store), 5, id) == Verdict::good);
    record.verdict = Verdict::damaged;
    CHECK(write_record(store, record));
    CHECK(verdict_of(read_verdicts(store), 5, id) == Verdict::damaged);
    CHECK_FALSE(verdict_of(read_verdicts(store), 6, id));
  }
}

TEST_SUITE("store swapping") {
  TEST_CASE("a shard gets a new container under a new name, and the old one goes") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    const Checkpoint checkpoint = save(store, {.step = 5}, {"x"});
    const os::TemporaryFile temporary(store.scratch(), 0444);
    format_test::write_file(temporary.path(),
                            format_test::read_file(checkpoint.shard_path(checkpoint.manifest.shards[0])));
    const os::FileLock lock(lock_path(store), std::chrono::milliseconds(0));
    swap_containers(store, checkpoint, checkpoint.manifest, {{.rank = 0, .temporary = temporary.path()}});
    CHECK(names_in(store.step_directory(5)) == Names{"manifest.json", "shard-00000-of-00001.1.ckpt"});
    CHECK(store.find(5)->manifest.shards[0].file == "shard-00000-of-00001.1.ckpt");
    CHECK(content_of(store, 5, 0) == "x");
    CHECK_FALSE(fs::exists(store.pending() + "/swap-0000000005"));
  }

  TEST_CASE("a manifest that a newer version wrote is read and never written anew") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    save(store, {.step = 5}, {"x"});
    const std::string path = store.step_directory(5) + "/manifest.json";
    const Bytes text = format_test::read_file(path);
    nlohmann::ordered_json object = format::unseal(as_text(text), path);
    object.erase("xxh3_128");
    object["version"] = {1, 1};
    object["later"] = "must survive";
    const std::string newer = format::seal(object);
    format_test::write_file(path, as_bytes(newer));
    const Checkpoint checkpoint = *store.find(5);
    CHECK(code_of([&] { swap_manifest(store, checkpoint, checkpoint.manifest); }) == Errc::unsupported);
    publish(store, {.step = 5}, 0, "new", true);
    CHECK(code_of([&] { (void)commit_if_complete(store, {.set = {.step = 5}, .timings = {}}); }) == Errc::unsupported);
    CHECK(as_text(format_test::read_file(path)) == newer);
    clean_leftovers(store);
    CHECK(content_of(store, 5, 0) == "x");
  }

  TEST_CASE("the lock is held by one at a time") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    const os::FileLock lock(lock_path(store), std::chrono::milliseconds(0));
    CHECK(code_of([&] { const os::FileLock second(lock_path(store), std::chrono::milliseconds(1)); }) == Errc::busy);
  }
}
