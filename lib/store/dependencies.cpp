// SPDX-License-Identifier: Apache-2.0
#include "store/dependencies.hpp"

#include "store/bases.hpp"

#include "format/container_reader.hpp"
#include "store/pending_set.hpp"

#include <vector>

namespace ckpt::store {
std::set<format::BaseCheckpoint> bases_of_sets(const Store& store) {
  std::set<format::BaseCheckpoint> bases;
  for (const SetContent& set : pending_sets(store)) {
    for (const auto& [rank, name] : set.files) {
      const std::string path = store.pending() + "/" + set_name(set.key) + "/" + name;
      try {
        for (const format::BaseCheckpoint& base : format::read_container_summary(path).bases) bases.insert(base);
      } catch (const Error& error) {
        // Committed or retired in this moment, or damaged.
        if (error.code() != Errc::not_found && error.code() != Errc::damaged) throw;
      }
    }
  }
  return bases;
}

bool depends_on(const Store& store, const Checkpoint& checkpoint, const format::BaseCheckpoint& other) {
  std::vector<format::BaseCheckpoint> open = checkpoint.manifest.bases;
  std::set<format::BaseCheckpoint> seen;
  while (!open.empty()) {
    const format::BaseCheckpoint next = open.back();
    open.pop_back();
    if (next == other) return true;
    if (!seen.insert(next).second) continue;
    if (const auto found = find_base(store.path(), next))
      open.insert(open.end(), found->manifest.bases.begin(), found->manifest.bases.end());
  }
  return false;
}

}  // namespace ckpt::store
