// SPDX-License-Identifier: Apache-2.0
#include "store/store.hpp"

#include "format/constants.hpp"
#include "format/damaged.hpp"
#include "os/fd.hpp"
#include "os/small_file.hpp"
#include "os/temporary_file.hpp"

#include <algorithm>
#include <cerrno>

namespace ckpt::store {
namespace {

constexpr std::uint64_t max_description_size = 1U << 20U;

/// Two ranks may make one store at once: each then sees the other's first steps, which aren't other things.
bool holds_other_things(const std::string& path) {
  const auto names = os::list_directory(path);
  return names && std::any_of(names->begin(), names->end(), [](const std::string& name) {
           return !name.starts_with(description_file) && !name.starts_with(os::temporary_prefix) &&
                  !name.starts_with(".") && name != "lost+found";
         });
}

[[noreturn]] void no_store(const std::string& path) {
  throw Error(Errc::not_found, "'" + path + "' is not a store: it has no " + description_file);
}

}  // namespace

std::optional<format::Manifest> read_manifest(const std::string& directory) {
  const std::string path = directory + "/" + manifest_file;
  try {
    const auto text = os::read_small_file(path, format::max_manifest_size);
    if (!text) return std::nullopt;
    return format::decode_manifest(*text, path);
  } catch (const format::Damaged&) {
    throw;
  } catch (const Error& error) {
    // What the disk can't give back is damage to the reader, whom another checkpoint may help.
    if (error.code() == Errc::damaged) throw format::Damaged(DamageKind::altered, 0, 0, error.what());
    // Nor is one that only its owner may read a reason to refuse the others.
    const int number = error.system_errno();
    if (number == EIO || number == EACCES || number == EPERM)
      throw format::Damaged(DamageKind::unreadable, 0, 0, error.what(), number);
    throw;
  }
}

Store Store::open(const std::string& path) {
  const auto text = os::read_small_file(path + "/" + description_file, max_description_size);
  if (!text) {
    if (!os::exists(path)) throw Error(Errc::not_found, "there is no store '" + path + "'");
    no_store(path);
  }
  format::check_store_description(*text, path + "/" + description_file, false);
  return Store(path);
}

Store Store::open_for_writing(const std::string& path, bool create) {
  const std::string description = path + "/" + description_file;
  auto text = os::read_small_file(description, max_description_size);
  if (!text) {
    if (!create) {
      throw Error(Errc::not_found, "there is no store '" + path + "', and it may not be made")
          .with_hint("is its disk mounted?");
    }
    if (holds_other_things(path)) {
      throw Error(Errc::exists, "'" + path + "' holds other things and is not a store");
    }
    os::make_directories(path);
    os::publish_small_file(description, format::encode_store_description(), os::Publish::first_wins, path);
    text = os::read_small_file(description, max_description_size);
    if (!text) no_store(path);
  }
  format::check_store_description(*text, description, true);
  Store store(path);
  os::make_directory(store.pending());
  os::make_directory(store.scratch());
  os::make_directory(store.pins());
  return store;
}

std::vector<std::uint64_t> Store::steps() const {
  std::vector<std::uint64_t> steps;
  for (const std::string& name : os::list_directory(path_).value_or(std::vector<std::string>{})) {
    if (const auto step = parse_step_name(name)) steps.push_back(*step);
  }
  return steps;
}

std::optional<Checkpoint> Store::find(std::uint64_t step) const {
  const std::string directory = step_directory(step);
  auto manifest = read_manifest(directory);
  if (!manifest) {
    if (!os::exists(directory)) return std::nullopt;
    // A set may have been renamed to its step between the two looks: then there is one now.
    manifest = read_manifest(directory);
  }
  if (!manifest) {
    throw format::Damaged(DamageKind::missing, 0, 0, "'" + directory + "' has no " + manifest_file);
  }
  if (manifest->step != step) {
    throw format::Damaged(DamageKind::altered, 0, 0,
                          "'" + directory + "/" + manifest_file + "' is of step " + std::to_string(manifest->step));
  }
  return Checkpoint{.directory = directory, .manifest = std::move(*manifest), .retired = false};
}

std::vector<std::string> Store::retired_directories() const {
  std::vector<std::string> directories;
  for (const std::string& name : os::list_directory(retired()).value_or(std::vector<std::string>{})) {
    if (!name.starts_with("set-")) directories.push_back(retired() + "/" + name);
  }
  return directories;
}

std::vector<std::uint64_t> Store::unmarked(std::vector<Skipped>* skipped) const {
  std::vector<std::uint64_t> found;
  std::vector<std::uint64_t> all = steps();
  for (auto step = all.rbegin(); step != all.rend(); ++step) {
    try {
      const auto checkpoint = find(*step);
      if (checkpoint && !checkpoint->manifest.is_marked()) found.push_back(*step);
    } catch (const format::Damaged& damage) {
      if (skipped != nullptr) skipped->push_back({.step = *step, .reason = damage.what()});
    }
  }
  return found;
}

Checkpoint Store::resolve(const Selector& selector) const {
  if (selector.kind == Selector::Kind::step) {
    auto checkpoint = find(selector.step);
    if (checkpoint) return std::move(*checkpoint);
    throw Error(Errc::not_found, "there is no checkpoint '" + address(selector.step) + "'");
  }
  if (selector.kind == Selector::Kind::id) {
    std::vector<Checkpoint> matches;
    const auto consider = [&](std::optional<format::Manifest> manifest, const std::string& directory, bool is_retired) {
      if (manifest && to_hex(manifest->id).starts_with(selector.id_prefix)) {
        matches.push_back({.directory = directory, .manifest = std::move(*manifest), .retired = is_retired});
      }
    };
    // One damaged manifest must not hide the checkpoint that is asked for.
    const auto consider_directory = [&](const std::string& directory, bool is_retired) {
      try {
        consider(read_manifest(directory), directory, is_retired);
      } catch (const format::Damaged&) {
        return;
      }
    };
    for (const std::uint64_t step : steps()) consider_directory(step_directory(step), false);
    for (const std::string& directory : retired_directories()) consider_directory(directory, true);
    if (matches.empty()) {
      throw Error(Errc::not_found, "there is no checkpoint '" + path_ + "@id:" + selector.id_prefix + "'");
    }
    for (const Checkpoint& other : matches) {
      if (other.manifest.id != matches.front().manifest.id) {
        throw Error(Errc::invalid_argument, "'" + path_ + "@id:" + selector.id_prefix + "' names several checkpoints");
      }
    }
    return std::move(matches.front());
  }
  // Manifests are read from the newest down, and no further than needed.
  std::uint64_t back = selector.back;
  std::optional<Checkpoint> newest_marked;
  const std::vector<std::uint64_t> all = steps();
  for (auto step = all.rbegin(); step != all.rend(); ++step) {
    auto checkpoint = find(*step);
    if (!checkpoint) continue;
    if (checkpoint->manifest.is_marked()) {
      if (!newest_marked) newest_marked = std::move(checkpoint);
      continue;
    }
    if (back == 0) return std::move(*checkpoint);
    --back;
  }
  if (selector.back == 0 && newest_marked) {
    const std::string marked = address(newest_marked->manifest.step);
    throw Error(Errc::not_found, "store '" + path_ + "' has no checkpoint that could be the latest: '" + marked +
                                     "' is marked " + newest_marked->manifest.why_never_latest())
        .with_hint("'" + marked + "' names it all the same");
  }
  throw Error(Errc::not_found, selector.back == 0 ? "store '" + path_ + "' has no checkpoint yet"
                                                  : "store '" + path_ + "' has no " +
                                                        std::to_string(selector.back + 1) + " checkpoints");
}

}  // namespace ckpt::store
