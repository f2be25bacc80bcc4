// SPDX-License-Identifier: Apache-2.0
#include "store/retire.hpp"

#include "format/damaged.hpp"
#include "os/fd.hpp"
#include "os/small_file.hpp"

#include <cerrno>
#include <cstdio>

namespace ckpt::store {
namespace {

/// False if another rank was faster.
bool move(const std::string& from, const std::string& to) {
  for (int i = 0; i < 1000; ++i) {
    const std::string target = i == 0 ? to : to + "-" + std::to_string(i);
    if (::rename(from.c_str(), target.c_str()) == 0) return true;
    if (errno == ENOENT) return false;
    if (errno != EEXIST && errno != ENOTEMPTY) os::throw_errno(errno, "cannot move '" + from + "' to '" + target + "'");
  }
  throw Error(Errc::exists, "'" + to + "' is taken a thousand times");
}

}  // namespace

bool retire_directory(const Store& store, const std::string& directory, std::uint64_t step, const std::string& suffix) {
  os::make_directory(store.retired());
  return move(directory, store.retired() + "/" + step_name(step) + "-" + suffix);
}

std::size_t retire_newer(const Store& store, std::uint64_t step, std::uint64_t attempt) {
  std::size_t moved = 0;
  const auto retire = [&](const std::string& from, const std::string& name) {
    os::make_directory(store.retired());
    if (move(from, store.retired() + "/" + name)) ++moved;
  };
  for (const std::string& name : os::list_directory(store.pending()).value_or(std::vector<std::string>{})) {
    const auto set = parse_set_name(name);
    if (set && set->step > step && set->attempt < attempt)
      retire(store.pending() + "/" + name, std::string(retired_set_prefix) + name);
  }
  for (const std::uint64_t newer : store.steps()) {
    if (newer <= step) continue;
    // A manifest that can't be read mustn't keep the job from going back behind it.
    std::string suffix = "damaged";
    try {
      const auto checkpoint = store.find(newer);
      if (!checkpoint || checkpoint->manifest.attempt >= attempt) continue;
      suffix = to_hex(checkpoint->manifest.id).substr(0, 8);
    } catch (const format::Damaged&) {
    }
    if (retire_directory(store, store.step_directory(newer), newer, suffix)) ++moved;
  }
  if (moved > 0) {
    os::sync_directory(store.retired());
    os::sync_directory(store.path());
    os::sync_directory(store.pending());
  }
  return moved;
}

}  // namespace ckpt::store
