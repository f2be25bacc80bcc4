// SPDX-License-Identifier: Apache-2.0
// A limit may stand at any level of the control group tree, so all of them up to the root are asked. In a container
// the own group is often shown as the root of what's mounted, whatever /proc/self/cgroup calls it.
#include "capture/available_memory.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

namespace ckpt::capture {
namespace {

std::optional<std::uint64_t> number_in(std::string_view text) {
  const std::size_t at = text.find_first_not_of(" \t");
  if (at == std::string_view::npos) return std::nullopt;
  std::uint64_t value = 0;
  const auto result = std::from_chars(text.data() + at, text.data() + text.size(), value);
  if (result.ec != std::errc()) return std::nullopt;  // "max", among others
  return value;
}

std::optional<std::uint64_t> number_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return number_in(line);
}

/// The number behind `key` in a file of "key number" lines.
std::optional<std::uint64_t> number_of(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with(key)) return number_in(std::string_view(line).substr(key.size()));
  }
  return std::nullopt;
}

/// The names of one version's files.
struct Version {
  const char* mount;
  const char* limit;
  const char* usage;
  const char* cache;  ///< in memory.stat: pages of files that are given up under pressure, which usage counts
};
constexpr Version version_two{"/sys/fs/cgroup", "/memory.max", "/memory.current", "inactive_file "};
constexpr Version version_one{"/sys/fs/cgroup/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes",
                              "total_inactive_file "};

void apply_limits(const std::string& mount, std::string group, const Version& version, std::uint64_t& available) {
  while (true) {
    if (group == "/") group.clear();
    const std::string directory = mount + group;
    const auto limit = number_of(directory + version.limit);
    const auto usage = number_of(directory + version.usage);
    if (limit && usage) {
      const std::uint64_t cache = number_of(directory + "/memory.stat", version.cache).value_or(0);
      const std::uint64_t used = *usage - std::min(*usage, cache);
      available = std::min(available, *limit - std::min(*limit, used));
    }
    if (group.empty()) return;
    group.resize(group.rfind('/'));
  }
}

}  // namespace

std::uint64_t available_memory(const std::string& root) {
  const auto system = number_of(root + "/proc/meminfo", "MemAvailable:");
  std::uint64_t available = system ? *system * 1024 : UINT64_MAX;
  std::ifstream groups(root + "/proc/self/cgroup");
  std::string line;  // number:controllers:/path
  while (std::getline(groups, line)) {
    const std::size_t one = line.find(':');
    const std::size_t two = one == std::string::npos ? one : line.find(':', one + 1);
    if (two == std::string::npos || line.compare(two + 1, 1, "/") != 0) continue;
    const std::string controllers = "," + line.substr(one + 1, two - one - 1) + ",";
    const std::string group = line.substr(two + 1);
    if (controllers == ",,") {
      apply_limits(root + version_two.mount, group, version_two, available);
      apply_limits(root + "/sys/fs/cgroup/unified", group, version_two, available);
    } else if (controllers.find(",memory,") != std::string::npos) {
      apply_limits(root + version_one.mount, group, version_one, available);
    }
  }
  return available == UINT64_MAX ? 0 : available;
}

}  // namespace ckpt::capture
