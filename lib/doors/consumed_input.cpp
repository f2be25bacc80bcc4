// SPDX-License-Identifier: Apache-2.0
#include "doors/consumed_input.hpp"

#include "os/fd.hpp"

#include <unistd.h>
#include <cerrno>
#include <set>
#include <string>

namespace ckpt::doors {
namespace {

std::string place_of(const SaveOptions& save, const std::string& operand) {
  std::string place = save.directory ? *save.directory + "/" + operand : operand;
  while (place.size() > 1 && place.ends_with('/')) place.pop_back();
  return place;
}

/// Links that were followed: they go, and what they lead to stays.
std::set<std::string> followed_links(const SaveOptions& save, const std::vector<source::TreeEntry>& entries) {
  std::set<std::string> links;
  for (const std::string& operand : save.sources) {
    const std::string place = place_of(save, operand);
    const auto status = os::stat_path(place, false);
    if (status && S_ISLNK(status->st_mode)) links.insert(place);
  }
  for (const source::TreeEntry& entry : entries) {
    if (entry.file.type == format::EntryType::symlink) continue;
    const auto status = os::stat_path(entry.origin, false);
    if (status && S_ISLNK(status->st_mode)) links.insert(entry.origin);
  }
  return links;
}

/// True if the path leads through one of the directories.
bool lies_below(const std::string& path, const std::set<std::string>& directories) {
  if (directories.empty()) return false;
  for (std::size_t slash = path.rfind('/'); slash != std::string::npos && slash > 0;
       slash = path.rfind('/', slash - 1)) {
    if (directories.contains(path.substr(0, slash))) return true;
  }
  return false;
}

}  // namespace

void remove_inputs(const SaveOptions& save, const std::vector<source::TreeEntry>& entries, Monitor& monitor) {
  const std::set<std::string> links = followed_links(save, entries);
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    const std::string& origin = entry->origin;
    if (origin.starts_with("/proc/self/fd/") || lies_below(origin, links)) continue;
    if (entry->file.type == format::EntryType::directory && !links.contains(origin)) {
      ::rmdir(origin.c_str());  // what was made in it since stays
    } else if (::unlink(origin.c_str()) != 0 && errno != ENOENT) {
      monitor.warning("staged, but cannot remove " + entry->shown);
    }
  }
  // Directories whose contents are gone go too; what was made in them since stays. And links to some.
  for (const std::string& operand : save.sources) {
    const std::string place = place_of(save, operand);
    if (links.contains(place))
      ::unlink(place.c_str());
    else if (!save.directory)
      ::rmdir(place.c_str());
  }
}

}  // namespace ckpt::doors
