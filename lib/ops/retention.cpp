// SPDX-License-Identifier: Apache-2.0
#include "ops/retention.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

namespace ckpt::ops {
namespace {

constexpr std::string_view newest_good_rule = "newest_good";
constexpr std::string_view base_rule = "base";
constexpr std::string_view reason_separator = "; ";

constexpr std::int64_t day = 24 * 3600;

bool is_sound(const Candidate& c) {
  return c.health != Health::damaged && c.health != Health::unreadable && !c.marks.contains("suspect") &&
         !c.marks.contains("poisoned");
}

bool has(const std::vector<std::uint64_t>& steps, std::uint64_t step) {
  return std::find(steps.begin(), steps.end(), step) != steps.end();
}

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

std::int64_t hour_of(std::int64_t time) { return floor_div(time, 3600); }
std::int64_t day_of(std::int64_t time) { return floor_div(time, day); }
/// The epoch began on a Thursday, weeks begin on Monday.
std::int64_t week_of(std::int64_t time) { return floor_div(day_of(time) + 3, 7); }

/// Nothing for NaN, and for what is no number as a whole.
std::optional<double> value_of(const Candidate& c, const std::string& key) {
  const auto found = c.meta.find(key);
  if (found == c.meta.end()) return std::nullopt;
  std::string_view text = found->second;
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || std::isnan(value)) return std::nullopt;
  return value;
}

bool has_dropped(const Candidate& c, const std::string& pattern) {
  const auto lossy = c.marks.find("lossy");
  if (lossy == c.marks.end()) return false;
  const std::string all = std::string(reason_separator) + lossy->second + std::string(reason_separator);
  return all.find(std::string(reason_separator) + reason_of_drop(pattern) + std::string(reason_separator)) !=
         std::string::npos;
}

class Decider {
 public:
  Decider(const RetentionPolicy& policy, const std::vector<Candidate>& candidates)
      : policy_(policy), candidates_(candidates), decisions_(candidates.size()), frozen_(candidates.size(), false) {
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      if (!candidates[i].retired) committed_.push_back(i);
    }
    std::sort(committed_.begin(), committed_.end(),
              [&](std::size_t a, std::size_t b) { return candidates[a].step > candidates[b].step; });
    std::copy_if(committed_.begin(), committed_.end(), std::back_inserter(sound_),
                 [&](std::size_t i) { return is_sound(candidates[i]); });
    const auto good = std::find_if(sound_.begin(), sound_.end(),
                                   [&](std::size_t i) { return !candidates[i].marks.contains("lossy"); });
    if (!sound_.empty()) newest_good_ = good != sound_.end() ? *good : sound_.front();
  }

  std::vector<Decision> run() {
    apply_rules();
    for (const std::size_t i : committed_) {
      if (!has(policy_.remove, candidates_[i].step)) continue;
      decisions_[i] = {};
    }
    protect();
    freeze();
    wait_for_verify();
    choose_drops();
    choose_rebases();
    return std::move(decisions_);
  }

 private:
  void keep(std::size_t i, std::string_view rule) {
    decisions_[i].kept = true;
    decisions_[i].rules.push_back(rule);
  }

  void apply_rules() {
    if (!policy_.has_keep_rule()) {
      for (std::size_t i = 0; i < candidates_.size(); ++i) keep(i, "unasked");
      return;
    }
    if (policy_.last) keep_last(*policy_.last);
    if (policy_.within_seconds) keep_within(*policy_.within_seconds);
    if (policy_.hourly) keep_newest_of_each(*policy_.hourly, hour_of, "hourly");
    if (policy_.daily) keep_newest_of_each(*policy_.daily, day_of, "daily");
    if (policy_.weekly) keep_newest_of_each(*policy_.weekly, week_of, "weekly");
    for (const KeepBest& best : policy_.best) keep_best(best);
    for (const std::size_t i : committed_) {
      const Candidate& c = candidates_[i];
      if (policy_.every && c.step % *policy_.every == 0) keep(i, "every");
      if (has(policy_.keep, c.step)) keep(i, "keep");
      // It may be mended, and then be what the others are not.
      if (c.health == Health::unreadable) keep(i, "unreadable");
      if (sound_.empty()) keep(i, "no_good");
    }
  }

  /// Unsound ones between them stay with them, and don't count.
  void keep_last(std::uint64_t count) {
    for (const std::size_t i : committed_) {
      if (count == 0) return;
      keep(i, "last");
      if (is_sound(candidates_[i])) --count;
    }
  }

  void keep_within(double age) {
    const auto newest =
        std::find_if(sound_.begin(), sound_.end(), [&](std::size_t i) { return candidates_[i].created.has_value(); });
    for (const std::size_t i : committed_) {
      const auto& created = candidates_[i].created;
      // One whose time isn't known isn't known to be old.
      const bool young = !created || newest == sound_.end() ||
                         static_cast<double>(*created) >= static_cast<double>(*candidates_[*newest].created) - age;
      if (young) keep(i, "within");
    }
  }

  void keep_newest_of_each(std::uint64_t count, std::int64_t (*period_of)(std::int64_t), std::string_view rule) {
    std::set<std::int64_t> periods;
    for (const std::size_t i : sound_) {
      const auto& created = candidates_[i].created;
      if (!created) {
        keep(i, rule);
      } else if (periods.size() < count && periods.insert(period_of(*created)).second) {
        keep(i, rule);
      }
    }
  }

  void keep_best(const KeepBest& best) {
    const auto has_key = [&](std::size_t i) { return candidates_[i].meta.contains(best.key); };
    // A mistyped key must not cost the best checkpoints.
    if (!sound_.empty() && std::none_of(sound_.begin(), sound_.end(), has_key)) {
      throw Error(Errc::invalid_argument, "no checkpoint has metadata '" + best.key + "'; nothing is removed")
          .with_hint("ckpt-save --meta=" + best.key + "=VALUE keeps it; ckpt-ls shows what there is");
    }
    std::vector<std::size_t> ranking = sound_;
    std::stable_sort(ranking.begin(), ranking.end(), [&](std::size_t a, std::size_t b) {
      const auto x = value_of(candidates_[a], best.key), y = value_of(candidates_[b], best.key);
      if (!x && !y) return has_key(a) && !has_key(b);
      if (!x || !y) return x.has_value();
      return best.highest ? *x > *y : *x < *y;
    });
    for (std::size_t n = 0; n < ranking.size() && n < best.count; ++n) keep(ranking[n], "best");
  }

  /// What no policy and no request removes.
  void protect() {
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      const Candidate& c = candidates_[i];
      if (i == newest_good_) keep(i, newest_good_rule);
      if (c.pinned) keep(i, "pinned");
      if (c.in_use) keep(i, "in_use");
      if (c.pending) keep(i, "pending");
    }
    // Nothing is known of what these depend on, so none of them is kept for another one's sake.
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      if (candidates_[i].health == Health::unreadable && is_missed(candidates_[i])) keep(i, base_rule);
    }
  }

  /// Who uses a checkpoint reads what it's decoded against: that stays, too, and all of it as it is.
  void freeze() {
    std::multimap<format::BaseCheckpoint, std::size_t> by_identity;
    std::vector<std::size_t> todo;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      if (candidates_[i].health == Health::unreadable) continue;
      by_identity.emplace(candidates_[i].identity(), i);
      frozen_[i] = candidates_[i].in_use;
      if (frozen_[i]) todo.push_back(i);
    }
    while (!todo.empty()) {
      const std::size_t dependent = todo.back();
      todo.pop_back();
      for (const format::BaseCheckpoint& base : candidates_[dependent].bases) {
        const auto [first, last] = by_identity.equal_range(base);
        for (auto entry = first; entry != last; ++entry) {
          const std::size_t i = entry->second;
          if (frozen_[i]) continue;
          frozen_[i] = true;
          if (!decisions_[i].kept) keep(i, base_rule);
          todo.push_back(i);
        }
      }
    }
  }

  void wait_for_verify() {
    std::vector<std::size_t> waiting;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      if (!decisions_[i].kept && waits_for_verify(candidates_[i])) waiting.push_back(i);
    }
    for (const std::size_t i : waiting) keep(i, "unverified");
  }

  /// True of what can't be read itself, and may be what another one needs once it's mended.
  [[nodiscard]] bool is_missed(const Candidate& unreadable) const {
    const auto resolves = [](const Candidate& c, const format::BaseCheckpoint& base) {
      return c.health != Health::unreadable && c.identity() == base;
    };
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      if (!decisions_[i].kept) continue;
      for (const format::BaseCheckpoint& base : candidates_[i].bases) {
        const bool there = std::any_of(candidates_.begin(), candidates_.end(),
                                       [&](const Candidate& other) { return resolves(other, base); });
        if (base.step == unreadable.step && !there) return true;
      }
    }
    return false;
  }

  /// True as long as one that stays isn't known to be good, and may be needed in the place of that one.
  [[nodiscard]] bool waits_for_verify(const Candidate& c) const {
    if (!policy_.verified) return false;
    return std::any_of(committed_.begin(), committed_.end(), [&](std::size_t i) {
      const bool stays_unverified = decisions_[i].kept && candidates_[i].health == Health::unverified;
      return stays_unverified && (candidates_[i].step > c.step || i == newest_good_);
    });
  }

  void choose_drops() {
    for (const DropAfter& drop : policy_.drop_after) {
      for (std::size_t n = static_cast<std::size_t>(std::min<std::uint64_t>(drop.last, sound_.size()));
           n < sound_.size(); ++n) {
        const std::size_t i = sound_[n];
        const Candidate& c = candidates_[i];
        const bool untouchable = i == newest_good_ || c.pinned || frozen_[i] || c.pending || waits_for_verify(c);
        if (!decisions_[i].kept || untouchable || has_dropped(c, drop.pattern)) continue;
        if (std::find(decisions_[i].drop.begin(), decisions_[i].drop.end(), drop.pattern) == decisions_[i].drop.end())
          decisions_[i].drop.push_back(drop.pattern);
      }
    }
  }

  void choose_rebases() {
    std::set<format::BaseCheckpoint> gone, there;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      // One without tensors that it had has another id.
      const bool same = decisions_[i].kept && decisions_[i].drop.empty();
      if (candidates_[i].health != Health::unreadable) (same ? there : gone).insert(candidates_[i].identity());
    }
    for (const format::BaseCheckpoint& base : there) gone.erase(base);
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      const auto& bases = candidates_[i].bases;
      const bool depends = std::any_of(bases.begin(), bases.end(),
                                       [&](const format::BaseCheckpoint& base) { return gone.contains(base); });
      if (decisions_[i].kept && !frozen_[i] && depends) decisions_[i].avoid.assign(gone.begin(), gone.end());
    }
  }

  const RetentionPolicy& policy_;
  const std::vector<Candidate>& candidates_;
  std::vector<Decision> decisions_;
  std::vector<bool> frozen_;            ///< neither removed nor encoded anew
  std::vector<std::size_t> committed_;  ///< the newest first
  std::vector<std::size_t> sound_;      ///< of these
  std::optional<std::size_t> newest_good_;
};

}  // namespace

std::string reason_of_drop(const std::string& pattern) { return "dropped " + pattern; }

void check_policy(const RetentionPolicy& policy) {
  const auto refuse = [](const std::string& why) { throw Error(Errc::invalid_argument, why); };
  for (const auto& count : {policy.last, policy.every, policy.hourly, policy.daily, policy.weekly}) {
    if (count == 0) refuse("a rule that keeps 0 checkpoints");
  }
  if (policy.within_seconds && !(*policy.within_seconds >= 0)) refuse("an age of less than nothing");
  for (const KeepBest& best : policy.best) {
    if (best.count == 0) refuse("a rule that keeps 0 checkpoints");
    if (best.key.empty()) refuse("the best of what? The key is empty");
  }
  for (const DropAfter& drop : policy.drop_after) {
    if (drop.last == 0) refuse("tensors of the newest checkpoint are never dropped: keep those of 1 at least");
    if (drop.pattern.find_first_not_of("*?[]!^") == std::string::npos) {
      refuse("the pattern '" + drop.pattern + "' would drop every tensor");
    }
  }
  for (const std::uint64_t step : policy.remove) {
    if (has(policy.keep, step)) refuse("step " + std::to_string(step) + " is to be kept and to be removed");
  }
}

std::vector<Decision> decide(const RetentionPolicy& policy, const std::vector<Candidate>& candidates) {
  return Decider(policy, candidates).run();
}

void hold_bases(const std::vector<Candidate>& candidates, std::vector<Decision>& decisions) {
  std::multimap<format::BaseCheckpoint, std::size_t> by_identity;
  std::vector<std::size_t> todo;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].health != Health::unreadable) by_identity.emplace(candidates[i].identity(), i);
    if (decisions[i].kept) todo.push_back(i);
  }
  while (!todo.empty()) {
    const std::size_t dependent = todo.back();
    todo.pop_back();
    for (const format::BaseCheckpoint& base : candidates[dependent].bases) {
      const auto [first, last] = by_identity.equal_range(base);
      const bool there = std::any_of(first, last, [&](const auto& entry) { return decisions[entry.second].kept; });
      if (there || first == last) continue;
      decisions[first->second].kept = true;
      decisions[first->second].rules.push_back(base_rule);
      todo.push_back(first->second);
    }
  }
}

namespace {

/// Those that are wanted, each one after its bases.
std::vector<std::size_t> bases_before_dependents(const std::vector<Candidate>& candidates,
                                                 const std::vector<bool>& wanted) {
  std::multimap<format::BaseCheckpoint, std::size_t> by_identity;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (wanted[i]) by_identity.emplace(candidates[i].identity(), i);
  }
  std::vector<std::size_t> bases_first;
  std::vector<bool> seen(candidates.size(), false);
  // Depth first, with a stack of its own: chains are short, but manifests are not to be trusted.
  for (std::size_t start = 0; start < candidates.size(); ++start) {
    std::vector<std::pair<std::size_t, bool>> stack;
    if (wanted[start]) stack.emplace_back(start, false);
    while (!stack.empty()) {
      const auto [i, is_done] = stack.back();
      stack.pop_back();
      if (is_done) {
        bases_first.push_back(i);
        continue;
      }
      if (seen[i]) continue;
      seen[i] = true;
      stack.emplace_back(i, true);
      for (const format::BaseCheckpoint& base : candidates[i].bases) {
        const auto [first, last] = by_identity.equal_range(base);
        for (auto entry = first; entry != last; ++entry) {
          if (!seen[entry->second]) stack.emplace_back(entry->second, false);
        }
      }
    }
  }
  return bases_first;
}

}  // namespace

std::vector<std::size_t> removal_order(const std::vector<Candidate>& candidates,
                                       const std::vector<Decision>& decisions) {
  std::vector<bool> go(candidates.size());
  for (std::size_t i = 0; i < candidates.size(); ++i) go[i] = !decisions[i].kept;
  std::vector<std::size_t> order = bases_before_dependents(candidates, go);
  std::reverse(order.begin(), order.end());
  return order;
}

std::vector<std::size_t> rebase_order(const std::vector<Candidate>& candidates,
                                      const std::vector<Decision>& decisions) {
  std::vector<bool> avoid(candidates.size());
  for (std::size_t i = 0; i < candidates.size(); ++i) avoid[i] = !decisions[i].avoid.empty();
  return bases_before_dependents(candidates, avoid);
}

}  // namespace ckpt::ops

namespace ckpt {

bool RetentionPolicy::has_keep_rule() const {
  return last || every || within_seconds || hourly || daily || weekly || !best.empty();
}

}  // namespace ckpt
