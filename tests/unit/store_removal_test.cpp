// SPDX-License-Identifier: Apache-2.0
// Pins, and removal in its three moments, with others at work between them and with a death after each.
#include "os/file_lock.hpp"
#include "store/attempts.hpp"
#include "store/leftovers.hpp"
#include "store/pins.hpp"
#include "store/removal.hpp"
#include "store/retire.hpp"
#include "store/swap.hpp"
#include "store/verify_records.hpp"
#include "store_support.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <chrono>
#include <filesystem>

using namespace ckpt;
using namespace ckpt::store;
using namespace store_test;
using unit_test::Scratch;

namespace fs = std::filesystem;

namespace {

void age(const std::string& path) {
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(24 * 8));
}

void record(const Store& store, const Checkpoint& checkpoint, Verdict verdict) {
  REQUIRE(write_record(store, {.step = checkpoint.manifest.step,
                               .id = checkpoint.manifest.id,
                               .verdict = verdict,
                               .level = "deep",
                               .when = 1,
                               .found = {}}));
}

std::vector<std::uint64_t> steps_of(const Store& store) { return store.steps(); }
using Steps = std::vector<std::uint64_t>;

}  // namespace

TEST_SUITE("pins") {
  TEST_CASE("a user's pin stays until it's taken away, and is of the step and of what is in it") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    const Checkpoint one = save(store, {.step = 1}, {"a"});
    add_user_pin(store, 1);
    add_user_pin(store, 1);
    auto pins = read_pins(store);
    REQUIRE(pins.size() == 1);
    CHECK(pins[0].by_user);
    CHECK(pinned_by(pins, one.manifest, false).by_user);
    CHECK(pinned_by(pins, one.manifest, true).by_user);
    format::Manifest other = one.manifest;
    other.id = {};
    CHECK(pinned_by(pins, other, false).by_user);
    CHECK_FALSE(pinned_by(pins, other, true).by_user);
    clean_leftovers(store);
    remove_user_pin(store, 1);
    CHECK(read_pins(store).empty());
    CHECK(code_of([&] { remove_user_pin(store, 1); }) == Errc::not_found);
    CHECK(code_of([&] { add_user_pin(store, 2); }) == Errc::not_found);
    CHECK(names_in(store.pins()).empty());
  }

  TEST_CASE("a process's pin goes with the object, and while it's there it's of the content") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    const Checkpoint one = save(store, {.step = 1}, {"a"});
    {
      const auto pin = Pin::take(store, one);
      REQUIRE(pin.has_value());
      remove_dead_pins(store);
      const auto pins = read_pins(store);
      REQUIRE(pins.size() == 1);
      CHECK(pinned_by(pins, one.manifest, true).in_use);
      CHECK_FALSE(pinned_by(pins, one.manifest, false).by_user);
      format::Manifest other = one.manifest;
      other.id = {};
      CHECK_FALSE(pinned_by(pins, other, false).in_use);
    }
    CHECK(names_in(store.pins()).empty());
  }

  TEST_CASE("a dead process's pin is none, and is cleaned; another host's is, for a week") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    const Checkpoint one = save(store, {.step = 1}, {"a"});
    std::string name;
    {
      const auto pin = Pin::take(store, one);
      name = names_in(store.pins()).at(0);
    }
    format_test::write_file(store.pins() + "/" + name, {});  // without a lock
    CHECK(read_pins(store).empty());
    CHECK(names_in(store.pins()) == Names{name});
    remove_dead_pins(store);
    CHECK(names_in(store.pins()).empty());

    const std::string elsewhere = "use.elsewhere.1.0-0" + name.substr(name.rfind('.'));
    format_test::write_file(store.pins() + "/" + elsewhere, {});
    remove_dead_pins(store);
    CHECK(read_pins(store).size() == 1);
    age(store.pins() + "/" + elsewhere);
    remove_dead_pins(store);
    CHECK(read_pins(store).empty());
  }

  TEST_CASE("what is gone, or is another one now, can't be pinned") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    Checkpoint one = save(store, {.step = 1}, {"a"});
    Checkpoint other = one;
    other.manifest.id = {};
    CHECK_FALSE(Pin::take(store, other).has_value());
    fs::rename(one.directory, scratch / "elsewhere");
    CHECK_FALSE(Pin::take(store, one).has_value());
    CHECK(names_in(store.pins()).empty());
  }

  TEST_CASE("files that aren't pins are left alone") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    fs::create_directory(store.pins());
    for (const char* name : {"pin.x", "pin.0000000001-", "pin.1-54bc2e1d", "use.", "notes"}) {
      format_test::write_file(store.pins() + "/" + name, {});
    }
    CHECK(read_pins(store).empty());
    CHECK(names_in(store.pins()).size() == 5);
  }
}

TEST_SUITE("removal") {
  TEST_CASE("what is discarded is deleted with its record, and nothing else is") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    const Checkpoint one = save(store, {.step = 1}, {"a", "b"});
    const Checkpoint two = save(store, {.step = 2, .world_size = 1}, {"c"});
    record(store, one, Verdict::good);
    record(store, two, Verdict::good);
    CHECK(discard(store, one.directory));
    CHECK_FALSE(discard(store, one.directory));
    CHECK_FALSE(store.find(1).has_value());
    const Settled settled = settle_trash(store);
    CHECK(settled.put_back.empty());
    CHECK(settled.left.empty());
    CHECK(names_in(store.trash()).empty());
    CHECK(names_in(store.records()).size() == 1);
    CHECK(content_of(store, 2, 0) == "c");
  }

  TEST_CASE("what is pinned between the two looks comes back as it was") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    const Checkpoint one = save(store, {.step = 1}, {"a"});
    save(store, {.step = 2}, {"b"});
    const auto pin = Pin::take(store, one);
    CHECK(discard(store, one.directory));
    CHECK(settle_trash(store).put_back == Names{"0000000001"});
    CHECK(content_of(store, 1, 0) == "a");
    CHECK(names_in(store.trash()).empty());
  }

  TEST_CASE("if its place is taken meanwhile it goes on as a retired one") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    const Checkpoint one = save(store, {.step = 1}, {"a"});
    save(store, {.step = 2}, {"b"});
    const auto pin = Pin::take(store, one);
    CHECK(discard(store, one.directory));
    save(store, {.step = 1}, {"new"});
    CHECK(settle_trash(store).put_back.size() == 1);
    CHECK(content_of(store, 1, 0) == "new");
    REQUIRE(store.retired_directories().size() == 1);
    CHECK(read_manifest(store.retired_directories()[0])->id == one.manifest.id);
  }

  TEST_CASE("if the last good one is retired meanwhile, good ones come back, and damaged ones don't") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    const Checkpoint one = save(store, {.step = 1}, {"a"});
    const Checkpoint two = save(store, {.step = 2}, {"b"});
    save(store, {.step = 3}, {"c"});
    record(store, two, Verdict::damaged);
    CHECK(discard(store, one.directory));
    CHECK(discard(store, two.directory));
    CHECK(retire_newer(store, 1, 1) == 1);
    CHECK(settle_trash(store).put_back == Names{"0000000001"});
    CHECK(steps_of(store) == Steps{1});
  }

  TEST_CASE("a retired one comes back to where it was if it's pinned, else it's deleted") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    save(store, {.step = 1}, {"a"});
    save(store, {.step = 2}, {"b"});
    save(store, {.step = 3}, {"c"});
    add_user_pin(store, 2);
    CHECK(retire_newer(store, 1, 1) == 2);
    const Names before = names_in(store.retired());
    for (const std::string& directory : store.retired_directories()) CHECK(discard(store, directory));
    CHECK(settle_trash(store).put_back.size() == 1);
    CHECK(names_in(store.retired()) == Names{before[0]});
    CHECK(names_in(store.trash()).empty());
  }

  TEST_CASE("what a dead one discarded is settled by the next writer, but not while another holds the lock") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    const Checkpoint one = save(store, {.step = 1}, {"a"});
    const Checkpoint two = save(store, {.step = 2}, {"b"});
    save(store, {.step = 3}, {"c"});
    add_user_pin(store, 2);
    CHECK(discard(store, one.directory));
    CHECK(discard(store, two.directory));
    {
      const os::FileLock lock(lock_path(store), std::chrono::seconds(1));
      clean_leftovers(store);
      CHECK(names_in(store.trash()).size() == 2);
    }
    clean_leftovers(store);
    CHECK(names_in(store.trash()).empty());
    CHECK(steps_of(store) == Steps{2, 3});
    CHECK(content_of(store, 2, 0) == "b");
  }

  TEST_CASE("what is half deleted is never put back") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    const Checkpoint one = save(store, {.step = 1}, {"a"});
    save(store, {.step = 2}, {"b"});
    add_user_pin(store, 1);
    CHECK(discard(store, one.directory));
    fs::remove(store.trash() + "/0000000001/manifest.json");
    CHECK(settle_trash(store).put_back.empty());
    CHECK(names_in(store.trash()).empty());
    CHECK(steps_of(store) == Steps{2});
  }

  TEST_CASE("the record of a content that is still there stays") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    const Checkpoint one = save(store, {.step = 1}, {"a"});
    record(store, one, Verdict::good);
    CHECK(retire_newer(store, 0, 1) == 1);
    save(store, {.step = 1, .attempt = 1}, {"a"});
    CHECK(discard(store, store.retired_directories().at(0)));
    CHECK(settle_trash(store).put_back.empty());
    CHECK(names_in(store.records()).size() == 1);
  }

  TEST_CASE("sets of attempts that are over go, and old ones that wait for a shard; living ones never") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    publish(store, {.step = 1, .world_size = 2, .attempt = 1}, 0, "over");
    publish(store, {.step = 2, .world_size = 2, .attempt = 2}, 0, "alive");
    publish(store, {.step = 3, .world_size = 2, .attempt = 2}, 0, "old");
    publish(store, {.step = 4, .world_size = 1, .attempt = 2}, 0, "complete");
    open_attempt(store, 2);
    age(store.pending() + "/0000000003.2.2");
    age(store.pending() + "/0000000004.1.2");
    CHECK(discard_dead_sets(store) == 2);
    CHECK(settle_trash(store).left.empty());
    CHECK(names_in(store.trash()).empty());
    CHECK(pending_set(store, {.step = 2, .world_size = 2, .attempt = 2}).files.size() == 1);
    CHECK(pending_set(store, {.step = 4, .world_size = 1, .attempt = 2}).complete());
    CHECK(pending_sets(store).size() == 2);
  }

  TEST_CASE("what can't be deleted is said, and the name it holds isn't taken a second time") {
    const Scratch scratch;
    const Store store = new_store(scratch);
    const Checkpoint one = save(store, {.step = 1}, {"a"});
    save(store, {.step = 2}, {"b"});
    fs::create_directories(store.trash() + "/0000000001");
    format_test::write_file(store.trash() + "/0000000001/held", {});
    CHECK_FALSE(discard(store, one.directory));
    CHECK(content_of(store, 1, 0) == "a");
  }
}
