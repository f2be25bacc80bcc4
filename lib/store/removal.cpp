// SPDX-License-Identifier: Apache-2.0
#include "store/removal.hpp"

#include "format/damaged.hpp"
#include "os/fd.hpp"
#include "os/file_lock.hpp"
#include "os/small_file.hpp"
#include "os/temporary_file.hpp"
#include "store/attempts.hpp"
#include "store/dependencies.hpp"
#include "store/pending_set.hpp"
#include "store/pins.hpp"
#include "store/retire.hpp"
#include "store/swap.hpp"
#include "store/verify_records.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>
#include <cstdio>
#include <set>

namespace ckpt::store {
namespace {

/// What is in .trash/.
struct Discarded {
  std::string name;
  std::optional<format::Manifest> manifest;  ///< nothing: it's no checkpoint any more, and can't be put back
  bool needed = false;

  [[nodiscard]] bool was_committed() const { return parse_step_name(name).has_value(); }
};

std::optional<format::Manifest> manifest_in(const std::string& directory) {
  try {
    return read_manifest(directory);
  } catch (const format::Damaged&) {
    return std::nullopt;
  }
}

std::vector<Discarded> read_trash(const Store& store) {
  std::vector<Discarded> entries;
  for (const std::string& name : os::list_directory(store.trash()).value_or(std::vector<std::string>{})) {
    Discarded entry{.name = name, .manifest = std::nullopt};
    if (!name.starts_with(retired_set_prefix)) entry.manifest = manifest_in(store.trash() + "/" + name);
    entries.push_back(std::move(entry));
  }
  return entries;
}

/// In this order: a writer pins, publishes, lets go of the pin, and commits. Whenever it does one of these while this
/// looks, a later look sees it.
void find_needed(const Store& store, std::vector<Discarded>& entries) {
  const std::vector<PinEntry> pins = read_pins(store);
  std::set<format::BaseCheckpoint> needed = bases_of_sets(store);
  const auto add_bases = [&](const std::optional<format::Manifest>& manifest) {
    if (!manifest) return;
    for (const format::BaseCheckpoint& base : manifest->bases) needed.insert(base);
  };
  const Verdicts verdicts = read_verdicts(store);
  const auto is_good = [&](const format::Manifest& manifest) {
    return !manifest.is_marked() && verdict_of(verdicts, manifest.step, manifest.id) != Verdict::damaged;
  };
  bool any_good = false;
  for (const std::uint64_t step : store.steps()) {
    const auto manifest = manifest_in(store.step_directory(step));
    add_bases(manifest);
    any_good = any_good || (manifest && is_good(*manifest));
  }
  for (const std::string& directory : store.retired_directories()) add_bases(manifest_in(directory));
  for (bool more = true; more;) {
    more = false;
    for (Discarded& entry : entries) {
      if (!entry.manifest || entry.needed) continue;
      const Pinned pinned = pinned_by(pins, *entry.manifest, !entry.was_committed());
      // The newest good one may have been retired since: then there must be one to go back to.
      const bool is_last_hope = !any_good && entry.was_committed() && is_good(*entry.manifest);
      if (!pinned.by_user && !pinned.in_use && !is_last_hope && !needed.contains(entry.manifest->identity())) continue;
      entry.needed = more = true;
      add_bases(entry.manifest);
    }
  }
}

void put_back(const Store& store, const Discarded& entry) {
  const std::string from = store.trash() + "/" + entry.name;
  if (entry.was_committed()) {
    const std::string place = store.sub(entry.name);
    if (::rename(from.c_str(), place.c_str()) == 0) return;
    if (errno != EEXIST && errno != ENOTEMPTY)
      os::throw_errno(errno, "cannot rename '" + from + "' to '" + place + "'");
    // Another one was saved at this step meanwhile: as a base and by its id it's still there.
  }
  retire_directory(store, from, entry.manifest->step, to_hex(entry.manifest->id).substr(0, 8));
}

/// The manifest goes first, durably: what is left of a crash in the middle isn't taken for a checkpoint.
void delete_entry(const std::string& directory) {
  const std::string manifest = directory + "/" + manifest_file;
  if (::unlink(manifest.c_str()) == 0) {
    os::sync_directory(directory);
  } else if (errno != ENOENT && errno != ENOTDIR) {
    os::throw_errno(errno, "cannot remove '" + manifest + "'");
  }
  os::remove_directory(directory);
}

bool is_there(const Store& store, const format::Manifest& content) {
  const auto committed = manifest_in(store.step_directory(content.step));
  if (committed && committed->id == content.id) return true;
  for (const std::string& directory : store.retired_directories()) {
    const auto retired = manifest_in(directory);
    if (retired && retired->step == content.step && retired->id == content.id) return true;
  }
  return false;
}

}  // namespace

bool discard(const Store& store, const std::string& directory) {
  os::make_directory(store.trash());
  std::string name(os::last_name_of(directory));
  if (parse_set_name(name)) name = std::string(retired_set_prefix) + name;
  const std::string to = store.trash() + "/" + name;
  if (::rename(directory.c_str(), to.c_str()) == 0) return true;
  if (errno == ENOENT || errno == EEXIST || errno == ENOTEMPTY) return false;
  os::throw_errno(errno, "cannot rename '" + directory + "' to '" + to + "'");
}

Settled settle_trash(const Store& store) {
  Settled settled;
  std::vector<Discarded> entries = read_trash(store);
  if (entries.empty()) return settled;
  const auto sync_places = [&] {
    os::sync_directory(store.path());
    os::sync_directory(store.pending());
    if (os::exists(store.retired())) os::sync_directory(store.retired());
    os::sync_directory(store.trash());
  };
  sync_places();
  find_needed(store, entries);
  for (const Discarded& entry : entries) {
    if (!entry.needed) continue;
    put_back(store, entry);
    settled.put_back.push_back(entry.name);
  }
  if (!settled.put_back.empty()) sync_places();
  for (const Discarded& entry : entries) {
    if (entry.needed) continue;
    try {
      delete_entry(store.trash() + "/" + entry.name);
      if (entry.manifest && !is_there(store, *entry.manifest))
        remove_records(store, entry.manifest->step, entry.manifest->id);
    } catch (const Error& error) {
      settled.left.push_back(error.what());
    }
  }
  return settled;
}

void settle_dead_trash(const Store& store) {
  const auto names = os::list_directory(store.trash());
  if (!names || names->empty()) return;
  try {
    const os::Fd lock = os::open(lock_path(store), O_RDWR | O_CREAT, 0666);
    if (os::try_lock(lock, lock_path(store))) (void)settle_trash(store);
  } catch (const Error&) {
    return;  // for the next prune to tell, and no reason to refuse a save
  }
}

std::size_t discard_dead_sets(const Store& store) {
  const std::vector<SetContent> sets = pending_sets(store);
  if (sets.empty()) return 0;
  const std::uint64_t attempt = highest_attempt(store);
  const std::int64_t now = os::file_system_time(store.scratch());
  const auto is_old = [&](const std::string& directory) {
    const auto status = os::stat_path(directory);
    return status && status->st_mtime + os::dead_after < now;
  };
  std::size_t count = 0;
  for (const SetContent& set : sets) {
    const std::string directory = store.pending() + "/" + set_name(set.key);
    const bool is_over = set.key.attempt < attempt;
    if (!is_over && (set.complete() || !is_old(directory))) continue;
    if (!discard(store, directory)) continue;
    const std::string discarded = store.trash() + "/" + std::string(retired_set_prefix) + set_name(set.key);
    // A shard that came in between the look and the rename: it's a living set after all. If another one of that name
    // has begun since, this one stays what it is now, and the writer sees that its shard is gone.
    const bool lives = !is_over && !is_old(discarded);
    if (!lives || ::rename(discarded.c_str(), directory.c_str()) != 0) ++count;
  }
  return count;
}

}  // namespace ckpt::store
