// SPDX-License-Identifier: Apache-2.0
// The rules of the retention policy, each on a small history.
#include "retention_support.hpp"

#include <ckpt/error.hpp>

#include <doctest/doctest.h>
#include <algorithm>

using namespace retention_test;

namespace {

Candidate marked(std::uint64_t step, const std::string& mark, const std::string& why = "why") {
  Candidate candidate = at(step);
  candidate.marks[mark] = why;
  return candidate;
}
Candidate with(std::uint64_t step, Health health) {
  Candidate candidate = at(step);
  candidate.health = health;
  return candidate;
}
Candidate retired(Candidate candidate) {
  candidate.retired = true;
  return candidate;
}

}  // namespace

TEST_SUITE("retention rules") {
  TEST_CASE("the last N stay") {
    CHECK(kept({.last = 2}, {at(1), at(2), at(3)}) == Steps{2, 3});
    CHECK(kept({.last = 9}, {at(1), at(2), at(3)}) == Steps{1, 2, 3});
  }

  TEST_CASE("what is suspect, poisoned or damaged doesn't take the place of a sound one, and stays beside it") {
    CHECK(kept({.last = 2}, {at(1), at(2), marked(3, "suspect"), at(4), marked(5, "poisoned")}) == Steps{2, 3, 4, 5});
    CHECK(kept({.last = 1}, {at(1), with(2, Health::good), with(3, Health::damaged)}) == Steps{2, 3});
  }

  TEST_CASE("lossy ones count, but the newest good one stays") {
    CHECK(kept({.last = 1}, {at(1), at(2), marked(3, "lossy")}) == Steps{2, 3});
    CHECK(kept({.last = 2}, {at(1), marked(2, "lossy"), at(3)}) == Steps{2, 3});
  }

  TEST_CASE("multiples stay") {
    CHECK(kept({.every = 100}, {at(0), at(50), at(100), at(150), at(200), at(210)}) == Steps{0, 100, 200, 210});
  }

  TEST_CASE("an age is counted from the newest one, and an unknown time is not old") {
    CHECK(kept({.within_seconds = 10}, {at(1, 80), at(2, 89), at(3, 90), at(4, 100), at(5)}) == Steps{3, 4, 5});
    CHECK(kept({.within_seconds = 0}, {at(1, 80), at(2, 100)}) == Steps{2});
  }

  TEST_CASE("the newest of each hour, day and week stays") {
    const std::vector<Candidate> days = {at(1, monday),       at(2, monday + hour / 2), at(3, monday + hour),
                                         at(4, monday + day), at(5, monday + 6 * day),  at(6, monday + 7 * day)};
    CHECK(kept({.hourly = 9}, days) == Steps{2, 3, 4, 5, 6});
    CHECK(kept({.hourly = 2}, days) == Steps{5, 6});
    CHECK(kept({.daily = 9}, days) == Steps{3, 4, 5, 6});
    CHECK(kept({.weekly = 9}, days) == Steps{5, 6});
    CHECK(kept({.weekly = 1}, {at(1, -1), at(2, 0)}) == Steps{2});
    CHECK(kept({.daily = 2}, {at(1, -1), at(2, 0)}) == Steps{1, 2});
  }

  TEST_CASE("the best stay; NaN is worse than any number, no number at all is worst, and the newer of two wins") {
    const auto loss = [](std::uint64_t step, const std::string& value) { return at(step, 0, {{"loss", value}}); };
    const std::vector<Candidate> losses = {loss(1, "0.5"),  loss(2, "nan"),  loss(3, "0.25"), loss(4, "Infinity"),
                                           loss(5, "0.25"), loss(6, "oops"), at(7),           loss(8, "+9e2"),
                                           loss(9, "-nan")};
    const auto best = [&](std::uint64_t count, bool highest) {
      Steps steps = kept({.best = {{.count = count, .key = "loss", .highest = highest}}}, losses);
      steps.erase(9);  // the newest good one
      return steps;
    };
    CHECK(best(1, false) == Steps{5});
    CHECK(best(2, false) == Steps{3, 5});
    CHECK(best(1, true) == Steps{4});
    CHECK(best(2, true) == Steps{4, 8});
    CHECK(best(5, true) == Steps{1, 3, 4, 5, 8});
    CHECK(best(8, true) == Steps{1, 2, 3, 4, 5, 6, 8});
  }

  TEST_CASE("a key that no checkpoint has is refused, but not in an empty store") {
    const RetentionPolicy policy{.best = {{.count = 1, .key = "los"}}};
    CHECK_THROWS_AS((void)decide(policy, {at(1, 0, {{"loss", "1"}})}), const Error&);
    CHECK(decide(policy, {}).empty());
  }

  TEST_CASE("a step that is to be removed goes, and alone if there is no rule") {
    CHECK(kept({.remove = {2}}, {at(1), at(2), at(3)}) == Steps{1, 3});
    CHECK(kept({.last = 2, .remove = {2}}, {at(1), at(2), at(3)}) == Steps{3});
    CHECK(kept({.remove = {2}}, {at(2), retired(at(2))}) == Steps{2});
    CHECK(kept({.remove = {2}}, {at(1), with(2, Health::unreadable)}) == Steps{1});
  }

  TEST_CASE("what may not go doesn't go because it's asked for") {
    Candidate pinned = at(1), used = at(2), needed = at(3);
    pinned.pinned = used.in_use = needed.pending = true;
    CHECK(kept({.remove = {1, 2, 3, 4}}, {pinned, used, needed, at(4)}) == Steps{1, 2, 3, 4});
  }

  TEST_CASE("retired ones go with a policy, unless they are pinned") {
    Candidate pinned = retired(at(8));
    pinned.pinned = true;
    CHECK(kept({.last = 1}, {at(5), retired(at(7)), pinned}) == Steps{5, 8});
    CHECK(kept({.drop_after = {{.last = 1, .pattern = "optim.*"}}}, {at(5), retired(at(7))}) == Steps{5, 7});
  }

  TEST_CASE("nothing goes if nothing sound would be left, or for a policy's sake what may be mended") {
    CHECK(kept({.last = 1}, {with(1, Health::damaged), marked(2, "suspect")}) == Steps{1, 2});
    CHECK(kept({.every = 100}, {with(1, Health::damaged), marked(2, "suspect")}) == Steps{1, 2});
    CHECK(kept({.last = 1}, {with(1, Health::unreadable), at(2), at(3)}) == Steps{1, 3});
  }

  TEST_CASE("what another one may need once it's mended isn't removed") {
    Candidate unknown = with(1, Health::unreadable);
    unknown.id = {};
    CHECK(kept({.remove = {1}}, {unknown, on(2, {1})}) == Steps{1, 2});
    CHECK(kept({.remove = {1}}, {unknown, retired(at(1)), on(2, {1})}) == Steps{1, 2});
    CHECK_FALSE(decide({.remove = {1}}, {unknown, retired(at(1)), on(2, {1})})[0].kept);
  }

  TEST_CASE("verified: nothing goes while a newer one that stays has no record") {
    const auto good = [](std::uint64_t step) { return with(step, Health::good); };
    CHECK(kept({.last = 1, .verified = true}, {at(1), good(2), at(3)}) == Steps{1, 2, 3});
    CHECK(kept({.last = 1, .verified = true}, {at(1), good(2), good(3)}) == Steps{3});
    CHECK(kept({.last = 1, .verified = true}, {good(1), at(2), good(3)}) == Steps{3});
    CHECK(kept({.last = 1, .every = 2, .verified = true}, {good(1), at(2), good(3)}) == Steps{1, 2, 3});
    CHECK(kept({.last = 1, .verified = true}, {at(3), retired(good(9))}) == Steps{3, 9});
  }

  TEST_CASE("tensors go from all but the last N, once, and never from what is pinned") {
    const std::string pattern = "optimizer.*";
    Candidate pinned = at(2);
    pinned.pinned = true;
    const std::vector<Candidate> candidates = {at(1),
                                               pinned,
                                               marked(3, "lossy", "quantized; " + reason_of_drop(pattern)),
                                               marked(4, "lossy", reason_of_drop("optimizer.*x")),
                                               at(5),
                                               at(6)};
    const auto decisions = decide({.drop_after = {{.last = 2, .pattern = pattern}}}, candidates);
    std::vector<std::size_t> dropped;
    for (const Decision& decision : decisions) {
      CHECK(decision.kept);
      dropped.push_back(decision.drop.size());
    }
    CHECK(dropped == std::vector<std::size_t>{1, 0, 0, 1, 0, 0});
  }

  TEST_CASE("what depends on something that goes, or loses tensors, is encoded anew") {
    const std::vector<Candidate> candidates = {at(1), on(2, {1}), on(3, {2}), on(4, {3})};
    const auto decisions = decide({.last = 1, .every = 3}, candidates);
    CHECK(kept_of(candidates, decisions) == Steps{3, 4});
    std::vector<format::BaseCheckpoint> gone = {candidates[0].identity(), candidates[1].identity()};
    std::sort(gone.begin(), gone.end());
    CHECK(decisions[2].avoid == gone);
    CHECK(decisions[3].avoid.empty());
    const auto drops = decide({.drop_after = {{.last = 1, .pattern = "m*"}}}, candidates);
    CHECK(drops[3].avoid.size() == 3);
  }

  TEST_CASE("what is in use stays as it is, with all that it's decoded against") {
    std::vector<Candidate> candidates = {at(1), on(2, {1}), on(3, {2}), on(4, {1}), at(5)};
    candidates[2].in_use = true;
    const auto decisions = decide({.last = 1, .drop_after = {{.last = 1, .pattern = "m*"}}}, candidates);
    CHECK(kept_of(candidates, decisions) == Steps{1, 2, 3, 5});
    for (const Decision& decision : decisions) CHECK((decision.avoid.empty() && decision.drop.empty()));
  }

  TEST_CASE("the same content at another step is no base: it may be stored against the one that goes") {
    std::vector<Candidate> candidates = {at(1), on(2, {1}), on(3, {1})};
    candidates[1].id = candidates[0].id;
    const auto decisions = decide({.last = 2}, candidates);
    CHECK(decisions[1].avoid == std::vector{candidates[0].identity()});
    CHECK(decisions[2].avoid == std::vector{candidates[0].identity()});
  }

  TEST_CASE("a policy that can't be meant is refused") {
    for (const RetentionPolicy& policy :
         std::vector<RetentionPolicy>{{.last = 0},
                                      {.every = 0},
                                      {.within_seconds = -1.0},
                                      {.daily = 0},
                                      {.best = {{.count = 0, .key = "loss"}}},
                                      {.best = {{.count = 1, .key = ""}}},
                                      {.keep = {5}, .remove = {5}},
                                      {.drop_after = {{.last = 0, .pattern = "m*"}}},
                                      {.drop_after = {{.last = 1, .pattern = ""}}},
                                      {.drop_after = {{.last = 1, .pattern = "*?*"}}}}) {
      CHECK_THROWS_AS(check_policy(policy), const Error&);
    }
    CHECK_NOTHROW(check_policy({.last = 1, .keep = {5}, .remove = {6}}));
  }
}
