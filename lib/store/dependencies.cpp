// SPDX-License-Identifier: Apache-2.0
#include "store/dependencies.hpp"

#include "format/container_reader.hpp"
#include "store/pending_set.hpp"

namespace ckpt::store {
namespace {

/// What a record names as its bases. A record of a kind that has none depends on nothing.
template <class Record>
std::vector<Base> named_bases(const Record& record) {
  std::vector<Base> bases;
  if constexpr (requires { record.bases; }) {
    for (const auto& base : record.bases) bases.push_back({.id = base.id, .step = base.step});
  }
  return bases;
}

}  // namespace

std::vector<Base> bases_of(const format::Manifest& manifest) { return named_bases(manifest); }

std::set<Digest> bases_of_sets(const Store& store) {
  std::set<Digest> ids;
  for (const SetContent& set : pending_sets(store)) {
    for (const auto& [rank, name] : set.files) {
      const std::string path = store.pending() + "/" + set_name(set.key) + "/" + name;
      try {
        for (const Base& base : named_bases(format::read_container_summary(path))) ids.insert(base.id);
      } catch (const Error& error) {
        // Committed or retired in this moment, or damaged.
        if (error.code() != Errc::not_found && error.code() != Errc::damaged) throw;
      }
    }
  }
  return ids;
}

}  // namespace ckpt::store
