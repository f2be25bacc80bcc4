// SPDX-License-Identifier: Apache-2.0
#include "store/skipping.hpp"

#include "os/fd.hpp"
#include "os/small_file.hpp"
#include "os/temporary_file.hpp"
#include "store/attempts.hpp"
#include "store/pending_set.hpp"

#include <unistd.h>
#include <array>
#include <cerrno>
#include <climits>

namespace ckpt::store {
namespace {

constexpr std::string_view decision_suffix = ".decision";
constexpr std::string_view save = "save";
constexpr std::string_view skip = "skip:";

std::string path_of(const Store& store, const SetKey& set) {
  return store.pending() + "/" + set_name(set) + std::string(decision_suffix);
}

std::optional<std::string> read_decision(const std::string& path) {
  std::array<char, PATH_MAX> text{};
  const ssize_t size = ::readlink(path.c_str(), text.data(), text.size());
  if (size < 0 && (errno == ENOENT || errno == EINVAL)) return std::nullopt;
  if (size < 0) os::throw_errno(errno, "cannot read the link '" + path + "'");
  return std::string(text.data(), static_cast<std::size_t>(size));
}

std::optional<std::string> reason_in(const std::optional<std::string>& decision) {
  if (!decision || !decision->starts_with(skip)) return std::nullopt;
  return decision->substr(skip.size());
}

/// What is decided once this has been proposed.
std::string propose(const Store& store, const SetKey& set, const std::string& proposal) {
  const std::string path = path_of(store, set);
  while (true) {
    if (::symlink(proposal.c_str(), path.c_str()) == 0) return proposal;
    if (errno != EEXIST) os::throw_errno(errno, "cannot make '" + path + "'");
    const auto decided = read_decision(path);
    if (!decided) continue;  // forgotten in this moment
    if (set.world_size > 1 || *decided == proposal) return *decided;
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) os::throw_errno(errno, "cannot remove '" + path + "'");
  }
}

template <class Visit>
void for_each_decision(const Store& store, Visit visit) {
  for (const std::string& name : os::list_directory(store.pending()).value_or(std::vector<std::string>{})) {
    if (!name.ends_with(decision_suffix)) continue;
    if (const auto set = parse_set_name(std::string_view(name).substr(0, name.size() - decision_suffix.size())))
      visit(*set);
  }
}

}  // namespace

std::optional<std::string> why_skipped(const Store& store, const SetKey& set) {
  return reason_in(read_decision(path_of(store, set)));
}

std::optional<std::string> decide_to_save(const Store& store, const SetKey& set) {
  // Nothing to agree on, and nothing to take back: no trace.
  if (set.world_size == 1 && !read_decision(path_of(store, set))) return std::nullopt;
  auto reason = reason_in(propose(store, set, std::string(save)));
  // Committed in this moment: whoever did that has forgotten the decision already, and no one would forget this one.
  if (!reason && os::exists(store.step_directory(set.step))) forget_decision(store, set);
  return reason;
}

bool decide_to_skip(const Store& store, const SetKey& set, const std::string& reason) {
  if (!pending_set(store, set).files.empty() || os::exists(store.step_directory(set.step))) return false;
  constexpr std::size_t longest = 1024;
  return reason_in(propose(store, set, std::string(skip) + reason.substr(0, longest))).has_value();
}

std::vector<SkippedSet> skipped_sets(const Store& store) {
  std::vector<SkippedSet> sets;
  for_each_decision(store, [&](const SetKey& set) {
    if (auto reason = why_skipped(store, set)) sets.push_back({.key = set, .reason = std::move(*reason)});
  });
  return sets;
}

void forget_decision(const Store& store, const SetKey& set) { ::unlink(path_of(store, set).c_str()); }

void remove_old_decisions(const Store& store) {
  const std::uint64_t attempt = highest_attempt(store);
  std::optional<std::int64_t> now;
  for_each_decision(store, [&](const SetKey& set) {
    const auto status = os::stat_path(path_of(store, set), false);
    if (!status) return;
    // Whoever committed the set died before it could forget this.
    const bool is_done = os::exists(store.step_directory(set.step)) && pending_set(store, set).files.empty();
    if (is_done && !why_skipped(store, set)) {
      forget_decision(store, set);
      return;
    }
    if (!now) now = os::file_system_time(store.scratch());
    if (set.attempt < attempt || status->st_mtime + os::dead_after < *now) forget_decision(store, set);
  });
}

}  // namespace ckpt::store
