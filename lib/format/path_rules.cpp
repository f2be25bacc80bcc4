// SPDX-License-Identifier: Apache-2.0
#include "format/path_rules.hpp"

#include "format/damaged.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_map>

namespace ckpt::format {
namespace {

constexpr std::size_t max_path = 4096;

[[noreturn]] void refuse(std::string_view path, const char* why) {
  throw Damaged(DamageKind::altered, 0, 0, "catalog: path '" + std::string(path) + "' " + why);
}

}  // namespace

bool is_safe_path(std::string_view path) {
  if (path.empty() || path.size() > max_path || path.find('\0') != std::string_view::npos) return false;
  std::size_t begin = 0;
  while (begin <= path.size()) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view component = path.substr(begin, end - begin);
    if (component.empty() || component == "." || component == "..") return false;
    begin = end + 1;
  }
  return true;
}

bool stays_inside(std::string_view path, std::string_view target) {
  if (target.empty() || target.size() > max_path || target.front() == '/') return false;
  if (target.find('\0') != std::string_view::npos) return false;
  // The link's own directory is a real one, so going up from it is safe; going up again after a name isn't, since that
  // name may be another link.
  auto depth = std::count(path.begin(), path.end(), '/');
  bool named = false;
  std::size_t begin = 0;
  while (begin <= target.size()) {
    const std::size_t end = std::min(target.find('/', begin), target.size());
    const std::string_view component = target.substr(begin, end - begin);
    begin = end + 1;
    if (component.empty() || component == ".") continue;
    if (component != "..") {
      named = true;
    } else if (named || --depth < 0) {
      return false;
    }
  }
  return true;
}

void check_paths(const std::vector<FileEntry>& files) {
  std::unordered_map<std::string_view, EntryType> types;
  types.reserve(files.size());
  std::string_view previous;
  for (const FileEntry& file : files) {
    if (!is_safe_path(file.path)) refuse(file.path, "would leave the tree");
    if (file.path <= previous) refuse(file.path, file.path == previous ? "is there twice" : "is out of order");
    previous = file.path;
    types.emplace(file.path, file.type);
  }
  for (const FileEntry& file : files) {
    const std::string_view path = file.path;
    for (std::size_t slash = path.find('/'); slash != std::string_view::npos; slash = path.find('/', slash + 1)) {
      const auto above = types.find(path.substr(0, slash));
      if (above != types.end() && above->second != EntryType::directory)
        refuse(path, "lies below something that is not a directory");
    }
    if (file.type != EntryType::hardlink) continue;
    const auto target = types.find(file.target);
    if (target == types.end() || target->second != EntryType::file) refuse(path, "is a hard link to nothing");
  }
}

}  // namespace ckpt::format
