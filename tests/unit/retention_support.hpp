// SPDX-License-Identifier: Apache-2.0
// Histories of checkpoints for the tests of the retention policy.
#pragma once

#include "ops/retention.hpp"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace retention_test {

using namespace ckpt;
using namespace ckpt::ops;

using Steps = std::set<std::uint64_t>;

inline constexpr std::int64_t hour = 3600;
inline constexpr std::int64_t day = 24 * hour;
/// A Monday, midnight.
inline constexpr std::int64_t monday = 1700438400;

inline Digest id_of(std::uint64_t n) { return xxh3_128(std::to_string(n)); }

inline Candidate at(std::uint64_t step, std::optional<std::int64_t> created = std::nullopt,
                    std::map<std::string, std::string> meta = {}) {
  return {.step = step, .id = id_of(step), .created = created, .meta = std::move(meta)};
}
inline Candidate on(std::uint64_t step, std::vector<std::uint64_t> bases) {
  Candidate candidate = at(step);
  for (const std::uint64_t base : bases) candidate.bases.push_back({.id = id_of(base), .step = base});
  return candidate;
}
inline Steps kept_of(const std::vector<Candidate>& candidates, const std::vector<Decision>& decisions) {
  Steps steps;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (decisions[i].kept) steps.insert(candidates[i].step);
  }
  return steps;
}
inline Steps kept(const RetentionPolicy& policy, const std::vector<Candidate>& candidates) {
  return kept_of(candidates, decide(policy, candidates));
}

}  // namespace retention_test
