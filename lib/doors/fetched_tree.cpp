// SPDX-License-Identifier: Apache-2.0
#include "doors/fetched_tree.hpp"

#include "os/fd.hpp"
#include "os/small_file.hpp"

#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

namespace ckpt::doors {
namespace {

constexpr std::string_view lock_prefix = "fetch.";
constexpr std::string_view tree_prefix = "fetched.";

/// What can't be removed now is left for the next that looks.
void remove_tree(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code failure;
  // Directories may forbid what they hold to be removed.
  for (fs::recursive_directory_iterator each(path, failure), end; !failure && each != end; each.increment(failure)) {
    std::error_code ignored;
    if (each->is_directory(ignored) && !each->is_symlink(ignored))
      fs::permissions(each->path(), fs::perms::owner_all, fs::perm_options::add, ignored);
  }
  fs::remove_all(path, failure);
}

std::string tree_of(const std::string& lock_path) {
  const std::size_t name = lock_path.rfind('/') + 1;
  return lock_path.substr(0, name) + std::string(tree_prefix) + lock_path.substr(name + lock_prefix.size());
}

}  // namespace

FetchedTree::FetchedTree(const std::string& scratch)
    : lock_(scratch, 0600, lock_prefix), path_(tree_of(lock_.path())) {}

FetchedTree::~FetchedTree() { remove_tree(path_); }

void remove_dead_fetched_trees(const std::string& scratch) {
  os::remove_dead_temporaries(scratch, lock_prefix);
  for (const std::string& name : os::list_directory(scratch).value_or(std::vector<std::string>{})) {
    if (!name.starts_with(tree_prefix)) continue;
    const std::string lock = scratch + "/" + std::string(lock_prefix) + name.substr(tree_prefix.size());
    if (!os::exists(lock)) remove_tree(scratch + "/" + name);
  }
}

}  // namespace ckpt::doors
