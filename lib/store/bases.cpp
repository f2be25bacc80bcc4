// SPDX-License-Identifier: Apache-2.0
#include "store/bases.hpp"

#include "store/layout.hpp"

#include <ckpt/error.hpp>

#include <algorithm>

namespace ckpt::store {
namespace {

/// The checkpoint in a directory; nothing if there's none, or its manifest can't be believed.
std::optional<Checkpoint> checkpoint_in(const std::string& directory, bool retired) {
  try {
    auto manifest = read_manifest(directory);
    if (!manifest) return std::nullopt;
    return Checkpoint{.directory = directory, .manifest = std::move(*manifest), .retired = retired};
  } catch (const Error& error) {
    if (error.code() != Errc::damaged) throw;
    return std::nullopt;
  }
}

std::vector<std::string> all_directories(const Store& store, std::size_t& committed) {
  std::vector<std::string> directories;
  for (const std::uint64_t step : store.steps()) directories.push_back(store.step_directory(step));
  committed = directories.size();
  for (std::string& directory : store.retired_directories()) directories.push_back(std::move(directory));
  return directories;
}

}  // namespace

std::string store_path_of(const Checkpoint& checkpoint) {
  const auto parent = [](const std::string& path) {
    const std::size_t slash = path.rfind('/');
    return slash == std::string::npos ? std::string(".") : path.substr(0, slash);
  };
  const std::string above = parent(checkpoint.directory);
  return checkpoint.retired ? parent(above) : above;
}

std::optional<Checkpoint> find_base(const std::string& store_path, const format::BaseCheckpoint& base) {
  const std::string likely = store_path + "/" + step_name(base.step);
  if (auto found = checkpoint_in(likely, false); found && found->manifest.identity() == base) return found;
  for (const std::string& directory : Store::open(store_path).retired_directories()) {
    auto found = checkpoint_in(directory, true);
    if (found && found->manifest.identity() == base) return found;
  }
  return std::nullopt;
}

std::vector<Checkpoint> dependents_of(const Store& store, const format::BaseCheckpoint& base) {
  std::vector<Checkpoint> dependents;
  std::size_t committed = 0;
  const std::vector<std::string> directories = all_directories(store, committed);
  for (std::size_t i = 0; i < directories.size(); ++i) {
    auto found = checkpoint_in(directories[i], i >= committed);
    if (!found) continue;
    const auto& bases = found->manifest.bases;
    const bool needs = std::find(bases.begin(), bases.end(), base) != bases.end();
    if (needs) dependents.push_back(std::move(*found));
  }
  return dependents;
}

}  // namespace ckpt::store
