// SPDX-License-Identifier: Apache-2.0
// What holds of every retention policy, on random histories.
#include "retention_support.hpp"

#include <ckpt/error.hpp>

#include <doctest/doctest.h>
#include <algorithm>
#include <array>
#include <random>

using namespace retention_test;

namespace {

bool is_good(const Candidate& c) {
  return !c.retired && c.health != Health::damaged && c.health != Health::unreadable && !c.marks.contains("suspect") &&
         !c.marks.contains("poisoned") && !c.marks.contains("lossy");
}

class Histories {
 public:
  explicit Histories(unsigned seed) : random_(seed) {}

  bool chance(unsigned percent) { return random_() % 100 < percent; }
  std::uint64_t below(std::uint64_t n) { return random_() % n; }

  std::vector<Candidate> history() {
    std::vector<Candidate> candidates;
    std::uint64_t step = 0;
    std::int64_t time = monday + static_cast<std::int64_t>(below(1000000));
    const std::uint64_t count = below(30);
    for (std::uint64_t n = 0; n < count; ++n) {
      step += 1 + below(40);
      time += static_cast<std::int64_t>(below(3 * day)) - (chance(5) ? 10 * day : 0);
      Candidate c = at(step);
      if (!chance(5)) c.created = time;
      if (chance(80)) c.meta["loss"] = chance(10) ? "nan" : std::to_string(below(50));
      if (chance(10)) c.marks["suspect"] = "why";
      if (chance(5)) c.marks["poisoned"] = "why";
      if (chance(10)) c.marks["lossy"] = "why";
      c.health = std::array{Health::unverified, Health::good, Health::good, Health::damaged}.at(below(4));
      if (chance(3)) c.health = Health::unreadable;
      c.pinned = chance(5);
      c.in_use = chance(5);
      c.pending = chance(5);
      for (const Candidate& older : candidates) {
        if (c.bases.size() < 3 && chance(8)) c.bases.push_back({.id = older.id, .step = older.step});
      }
      c.retired = chance(10);
      candidates.push_back(std::move(c));
    }
    if (!candidates.empty()) candidates.back().meta.emplace("loss", "1");
    std::shuffle(candidates.begin(), candidates.end(), random_);
    return candidates;
  }

  /// With one rule at least. A best loss only where one has a loss.
  RetentionPolicy policy(const std::vector<Candidate>& candidates) {
    RetentionPolicy policy;
    if (chance(40)) policy.last = 1 + below(6);
    if (chance(30)) policy.every = 1 + below(60);
    if (chance(30)) policy.within_seconds = static_cast<double>(below(10 * day));
    if (chance(20)) policy.hourly = 1 + below(5);
    if (chance(20)) policy.daily = 1 + below(5);
    if (chance(20)) policy.weekly = 1 + below(5);
    const bool any_loss = std::any_of(candidates.begin(), candidates.end(), [](const Candidate& c) {
      return (is_good(c) || (!c.retired && c.marks.contains("lossy"))) && c.meta.contains("loss");
    });
    if (any_loss && chance(30)) policy.best.push_back({.count = 1 + below(4), .key = "loss", .highest = chance(50)});
    if (!policy.has_keep_rule()) policy.last = 1 + below(3);
    if (chance(20)) policy.keep.push_back(below(300));
    policy.verified = chance(20);
    return policy;
  }

 private:
  std::mt19937 random_;
};

/// A check of its own for each of many random histories and policies.
template <class Check>
void for_random(Check check) {
  for (unsigned seed = 0; seed < 1500; ++seed) {
    CAPTURE(seed);
    Histories histories(seed);
    const std::vector<Candidate> candidates = histories.history();
    RetentionPolicy policy;
    try {
      policy = histories.policy(candidates);
      check(histories, policy, candidates);
    } catch (const Error& error) {
      FAIL(error.what());
    }
  }
}

}  // namespace

TEST_SUITE("retention properties") {
  TEST_CASE("the newest good one stays, whatever is asked for") {
    for_random([](Histories& histories, RetentionPolicy policy, const std::vector<Candidate>& candidates) {
      policy.keep.clear();
      for (const Candidate& c : candidates) {
        if (histories.chance(50)) policy.remove.push_back(c.step);
      }
      std::optional<std::uint64_t> newest;
      for (const Candidate& c : candidates) {
        if (is_good(c)) newest = std::max(newest.value_or(0), c.step);
      }
      if (newest) CHECK(kept(policy, candidates).contains(*newest));
    });
  }

  TEST_CASE("without a sound one a policy removes no committed one") {
    for_random([](Histories& histories, const RetentionPolicy& policy, std::vector<Candidate> candidates) {
      for (Candidate& c : candidates) {
        if (histories.chance(50))
          c.health = Health::damaged;
        else
          c.marks["poisoned"] = "why";
      }
      const auto decisions = decide({.last = policy.last.value_or(1)}, candidates);
      for (std::size_t i = 0; i < candidates.size(); ++i) CHECK((candidates[i].retired || decisions[i].kept));
    });
  }

  TEST_CASE("what stays has a reason, what goes has none") {
    for_random([](Histories&, const RetentionPolicy& policy, const std::vector<Candidate>& candidates) {
      for (const Decision& decision : decide(policy, candidates)) CHECK(decision.kept == !decision.rules.empty());
    });
  }

  TEST_CASE("said again it removes nothing more") {
    for_random([](Histories&, const RetentionPolicy& policy, const std::vector<Candidate>& candidates) {
      const auto decisions = decide(policy, candidates);
      std::vector<Candidate> left;
      for (std::size_t i = 0; i < candidates.size(); ++i) {
        if (decisions[i].kept) left.push_back(candidates[i]);
      }
      CHECK(kept(policy, left) == kept_of(candidates, decisions));
    });
  }

  TEST_CASE("the order of the candidates makes no difference") {
    for_random([](Histories&, const RetentionPolicy& policy, std::vector<Candidate> candidates) {
      const Steps before = kept(policy, candidates);
      std::sort(candidates.begin(), candidates.end(),
                [](const Candidate& a, const Candidate& b) { return a.step < b.step; });
      CHECK(kept(policy, candidates) == before);
    });
  }

  TEST_CASE("no clock: histories that are weeks apart are treated alike") {
    for_random([](Histories&, const RetentionPolicy& policy, std::vector<Candidate> candidates) {
      const Steps before = kept(policy, candidates);
      for (Candidate& c : candidates) {
        if (c.created) *c.created += 700 * day;
      }
      CHECK(kept(policy, candidates) == before);
    });
  }

  TEST_CASE("another rule only adds to what stays, and what two rules keep is what each keeps") {
    for_random([](Histories&, const RetentionPolicy& policy, const std::vector<Candidate>& candidates) {
      const Steps all = kept(policy, candidates);
      RetentionPolicy left = policy, right{.last = policy.last.value_or(1), .keep = policy.keep};
      right.verified = policy.verified;
      left.last.reset();
      left.keep.clear();
      if (!left.has_keep_rule() || !policy.last) return;
      Steps both = kept(left, candidates);
      both.merge(kept(right, candidates));
      CHECK(both == all);
    });
  }

  TEST_CASE("verified: what goes leaves no unverified one after it") {
    for_random([](Histories&, RetentionPolicy policy, const std::vector<Candidate>& candidates) {
      policy.verified = true;
      const Steps stays = kept(policy, candidates);
      for (const Candidate& c : candidates) {
        if (stays.contains(c.step)) continue;
        for (const Candidate& newer : candidates) {
          const bool stays_unverified =
              !newer.retired && stays.contains(newer.step) && newer.health == Health::unverified;
          CHECK_FALSE((stays_unverified && newer.step > c.step));
        }
      }
    });
  }

  TEST_CASE("no rule, no removal but of what is named") {
    for_random([](Histories& histories, const RetentionPolicy&, const std::vector<Candidate>& candidates) {
      RetentionPolicy policy;
      for (const Candidate& c : candidates) {
        if (histories.chance(20)) policy.remove.push_back(c.step);
      }
      const auto decisions = decide(policy, candidates);
      for (std::size_t i = 0; i < candidates.size(); ++i) {
        const bool named =
            std::find(policy.remove.begin(), policy.remove.end(), candidates[i].step) != policy.remove.end();
        CHECK((decisions[i].kept || (named && !candidates[i].retired)));
      }
    });
  }

  TEST_CASE("either all that depends on what goes is encoded anew, or its bases stay") {
    for_random([](Histories& histories, const RetentionPolicy& policy, std::vector<Candidate> candidates) {
      auto decisions = decide(policy, candidates);
      // Some can be encoded anew, some can't.
      for (std::size_t i = 0; i < candidates.size(); ++i) {
        const auto& avoid = decisions[i].avoid;
        if (avoid.empty() || histories.chance(30)) continue;
        std::erase_if(candidates[i].bases, [&](const format::BaseCheckpoint& base) {
          return std::find(avoid.begin(), avoid.end(), base) != avoid.end();
        });
      }
      hold_bases(candidates, decisions);
      for (std::size_t i = 0; i < candidates.size(); ++i) {
        if (!decisions[i].kept) continue;
        for (const format::BaseCheckpoint& base : candidates[i].bases) {
          for (std::size_t b = 0; b < candidates.size(); ++b) {
            const bool is_base = candidates[b].identity() == base && candidates[b].health != Health::unreadable;
            CHECK((!is_base || decisions[b].kept));
          }
        }
      }
    });
  }

  TEST_CASE("what is in use is not touched, nor is what it's decoded against") {
    for_random([](Histories&, RetentionPolicy policy, const std::vector<Candidate>& candidates) {
      policy.drop_after.push_back({.last = 1, .pattern = "m*"});
      const auto decisions = decide(policy, candidates);
      std::set<format::BaseCheckpoint> used;
      const auto use = [&](const Candidate& c) {
        for (const format::BaseCheckpoint& base : c.bases) used.insert(base);
      };
      for (const Candidate& c : candidates) {
        if (c.in_use && c.health != Health::unreadable) use(c);
      }
      for (std::size_t round = 0; round < candidates.size(); ++round) {
        for (const Candidate& c : candidates) {
          if (used.contains(c.identity()) && c.health != Health::unreadable) use(c);
        }
      }
      for (std::size_t i = 0; i < candidates.size(); ++i) {
        const bool is_used = candidates[i].in_use || used.contains(candidates[i].identity());
        if (!is_used || candidates[i].health == Health::unreadable) continue;
        CHECK(decisions[i].kept);
        CHECK(decisions[i].avoid.empty());
        CHECK(decisions[i].drop.empty());
      }
    });
  }

  TEST_CASE("each goes before what it depends on, and none is forgotten") {
    for_random([](Histories&, const RetentionPolicy& policy, const std::vector<Candidate>& candidates) {
      const auto decisions = decide(policy, candidates);
      const auto order = removal_order(candidates, decisions);
      std::vector<std::size_t> place(candidates.size(), candidates.size());
      for (std::size_t n = 0; n < order.size(); ++n) {
        CHECK_FALSE(decisions[order[n]].kept);
        CHECK(place[order[n]] == candidates.size());
        place[order[n]] = n;
      }
      CHECK(order.size() == candidates.size() - static_cast<std::size_t>(std::count_if(
                                                    decisions.begin(), decisions.end(),
                                                    [](const Decision& decision) { return decision.kept; })));
      for (std::size_t i = 0; i < candidates.size(); ++i) {
        if (decisions[i].kept) continue;
        for (const format::BaseCheckpoint& base : candidates[i].bases) {
          for (std::size_t b = 0; b < candidates.size(); ++b) {
            if (candidates[b].identity() == base && !decisions[b].kept) CHECK(place[i] < place[b]);
          }
        }
      }
    });
  }

  TEST_CASE("each is encoded anew after what it depends on") {
    for_random([](Histories&, const RetentionPolicy& policy, const std::vector<Candidate>& candidates) {
      const auto decisions = decide(policy, candidates);
      std::vector<std::optional<std::size_t>> place(candidates.size());
      const auto order = rebase_order(candidates, decisions);
      for (std::size_t n = 0; n < order.size(); ++n) place[order[n]] = n;
      for (std::size_t i = 0; i < candidates.size(); ++i) {
        CHECK(place[i].has_value() == !decisions[i].avoid.empty());
        for (std::size_t b = 0; b < candidates.size(); ++b) {
          if (place[i] && place[b] && contains(candidates[i].bases, candidates[b].identity())) {
            CHECK(*place[b] < *place[i]);
          }
        }
      }
    });
  }

  TEST_CASE("manifests that depend on each other in a circle end nothing in a loop") {
    const std::vector<Candidate> circle = {on(1, {2}), on(2, {1}), at(3)};
    auto decisions = decide({.last = 1}, circle);
    CHECK(removal_order(circle, decisions).size() == 2);
    hold_bases(circle, decisions);
    CHECK(kept_of(circle, decisions) == Steps{3});
  }
}
