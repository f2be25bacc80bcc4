// SPDX-License-Identifier: Apache-2.0
// What isn't durable yet: in spools, in sets, and what was decided to be skipped.
#include <ckpt/list.hpp>

#include "doors/spool_places.hpp"
#include "os/fd.hpp"
#include "store/attempts.hpp"
#include "store/pending_set.hpp"
#include "store/skipping.hpp"
#include "store/store.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <ctime>

namespace ckpt {
namespace {

using doors::Entry;
using doors::Spool;
using doors::Stage;

double age_of(const struct stat& status) {
  return static_cast<double>(std::max<time_t>(0, std::time(nullptr) - status.st_mtime));
}

/// Waiting for ranks, or complete and held up.
std::string reason_of(const store::SetContent& set) {
  if (set.complete()) return "complete; the next save or server commits it";
  std::string reason = "waits for rank";
  std::size_t named = 0;
  const std::size_t missing = set.key.world_size - set.files.size();
  if (missing > 1) reason += "s";
  for (std::uint32_t rank = 0; rank < set.key.world_size; ++rank) {
    if (set.files.contains(rank)) continue;
    if (named == 8) return reason + " and " + std::to_string(missing - named) + " more";
    reason += (named++ == 0 ? " " : ", ") + std::to_string(rank);
  }
  return reason;
}

void add_sets(const store::Store& store, std::vector<PendingInfo>& infos) {
  for (const store::SetContent& set : store::pending_sets(store)) {
    const std::string path = store.pending() + "/" + store::set_name(set.key);
    const auto status = os::stat_path(path);
    if (!status) continue;  // committed in this moment
    PendingInfo info;
    info.step = set.key.step;
    info.attempt = set.key.attempt;
    info.world_size = set.key.world_size;
    info.reason = reason_of(set);
    info.path = path;
    for (const auto& [rank, name] : set.files) info.ranks_present.push_back(rank);
    info.age_seconds = age_of(*status);
    infos.push_back(std::move(info));
  }
}

void add_skipped(const store::Store& store, std::vector<PendingInfo>& infos) {
  for (const store::SkippedSet& set : store::skipped_sets(store)) {
    PendingInfo info;
    info.step = set.key.step;
    info.attempt = set.key.attempt;
    info.world_size = set.key.world_size;
    info.state = SaveState::skipped;
    info.reason = set.reason;
    infos.push_back(std::move(info));
  }
}

SaveState state_of(const Entry& entry, Stage stage) {
  if (stage == Stage::failed) return SaveState::failed;
  return stage == Stage::staged && doors::is_in_hand(entry) ? SaveState::writing : SaveState::staged;
}

std::string reason_of(const Entry& entry, Stage stage, SaveState state, bool is_drained) {
  if (stage == Stage::incoming) {
    return doors::is_in_hand(entry) ? "is being handed over" : "its producer died; the next worker settles it";
  }
  if (const auto trouble = doors::read_trouble(entry)) {
    return stage == Stage::failed ? trouble->reason : "will be tried again: " + trouble->reason;
  }
  if (state == SaveState::writing) return {};
  return is_drained ? "waits for its turn" : "waits for a worker";
}

void add_entries(const Spool& spool, std::uint64_t attempt, std::vector<PendingInfo>& infos) {
  const bool is_drained = doors::is_drained_by_someone(spool);
  for (const Stage stage : {Stage::incoming, Stage::staged, Stage::failed}) {
    for (const Entry& entry : spool.entries(stage)) {
      const auto status = os::stat_path(entry.path);
      if (!status) continue;  // it has moved on in this moment
      PendingInfo info;
      info.step = entry.name.set.step;
      info.attempt = entry.name.set.attempt;
      info.world_size = entry.name.set.world_size;
      info.rank = entry.name.rank;
      info.path = entry.path;
      info.state = state_of(entry, stage);
      info.reason = reason_of(entry, stage, info.state, is_drained);
      if (info.attempt < attempt) info.reason = "attempt " + std::to_string(info.attempt) + " is over";
      info.age_seconds = age_of(*status);
      try {
        info.raw_bytes = doors::read_ticket(entry).raw_bytes;
      } catch (const Error& error) {
        info.reason = error.what();
      }
      infos.push_back(std::move(info));
    }
  }
}

}  // namespace

PendingListing list_pending(const std::string& path, const std::vector<std::string>& spools) {
  const store::Store store = store::Store::open(path);
  PendingListing listing;
  const std::uint64_t attempt = store::highest_attempt(store);
  for (const Spool& spool : doors::reachable_spools(path, spools)) add_entries(spool, attempt, listing.saves);
  add_sets(store, listing.saves);
  add_skipped(store, listing.saves);
  std::stable_sort(listing.saves.begin(), listing.saves.end(),
                   [](const PendingInfo& a, const PendingInfo& b) { return a.step < b.step; });
  for (const doors::SpoolPlace& place : doors::find_spool_places(path)) {
    const bool is_there = place.here && Spool::find(place.path).has_value();
    if (!is_there) listing.unseen.push_back("spool '" + place.path + "' of host " + place.host);
  }
  return listing;
}

}  // namespace ckpt
