// SPDX-License-Identifier: Apache-2.0
// One empty file an attempt: making it is atomic, and a copied store keeps it.
#include "store/attempts.hpp"

#include "format/damaged.hpp"
#include "os/fd.hpp"
#include "os/small_file.hpp"

#include <fcntl.h>
#include <algorithm>

namespace ckpt::store {

std::uint64_t highest_attempt(const Store& store) {
  std::uint64_t highest = 0;
  for (const std::string& name : os::list_directory(store.pending()).value_or(std::vector<std::string>{})) {
    if (const auto attempt = parse_attempt_name(name)) highest = std::max(highest, *attempt);
    if (const auto set = parse_set_name(name)) highest = std::max(highest, set->attempt);
  }
  // A replica has no .pending/ of its own: there the newest checkpoint tells.
  const auto steps = store.steps();
  if (steps.empty()) return highest;
  try {
    const auto newest = store.find(steps.back());
    return newest ? std::max(highest, newest->manifest.attempt) : highest;
  } catch (const format::Damaged&) {
    return highest;
  }
}

void require_not_superseded(const Store& store, std::uint64_t attempt) {
  const std::uint64_t highest = highest_attempt(store);
  if (highest > attempt) {
    throw Error(Errc::exists, "attempt " + std::to_string(attempt) + " is over: attempt " + std::to_string(highest) +
                                  " has opened store '" + store.path() + "'");
  }
}

void open_attempt(const Store& store, std::uint64_t attempt) {
  require_not_superseded(store, attempt);
  if (attempt == 0) return;
  const std::string path = store.pending() + "/" + attempt_name(attempt);
  if (os::exists(path)) return;
  os::open(path, O_WRONLY | O_CREAT, 0666).close(path);
  os::sync_directory(store.pending());
}

}  // namespace ckpt::store
