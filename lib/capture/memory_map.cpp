// SPDX-License-Identifier: Apache-2.0
#include "capture/memory_map.hpp"

#include "os/fd.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>
#include <charconv>
#include <string>

namespace ckpt::capture {
namespace {

constexpr const char* path = "/proc/self/maps";

std::uintptr_t take_address(std::string_view& text, char end) {
  std::uintptr_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (result.ec != std::errc() || result.ptr == text.data() + text.size() || *result.ptr != end) {
    throw Error(Errc::io, std::string("cannot understand '") + path + "'");
  }
  text.remove_prefix(static_cast<std::size_t>(result.ptr - text.data()) + 1);
  return value;
}

/// The rest behind `count` fields.
std::string_view skip_fields(std::string_view text, int count) {
  for (; count > 0; --count) {
    const std::size_t end = text.find(' ');
    text.remove_prefix(end == std::string_view::npos ? text.size() : end);
    const std::size_t next = text.find_first_not_of(' ');
    text.remove_prefix(next == std::string_view::npos ? text.size() : next);
  }
  return text;
}

}  // namespace

Mapping parse_mapping(std::string_view line) {
  Mapping mapping;
  mapping.at.begin = take_address(line, '-');
  mapping.at.end = take_address(line, ' ');
  const std::string_view rights = line.substr(0, 4);
  const std::string_view name = skip_fields(line, 4);  // rights, offset, device, inode
  if (!rights.starts_with('r')) return mapping;
  if (rights.ends_with('s')) {
    mapping.kind = MappingKind::shared;
  } else if (name.empty() || name == "[heap]" || name.starts_with("[anon:")) {
    mapping.kind = rights.starts_with("rw") ? MappingKind::anonymous : MappingKind::file;
  } else {
    mapping.kind = MappingKind::file;
  }
  return mapping;
}

std::vector<Mapping> read_memory_map() {
  const os::Fd fd = os::open(path, O_RDONLY);
  std::string text;
  std::size_t size = 0;
  while (true) {
    text.resize(size + 65536);
    const ssize_t n = ::read(fd.get(), text.data() + size, text.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) os::throw_errno(errno, std::string("cannot read '") + path + "'");
    if (n == 0) break;
    size += static_cast<std::size_t>(n);
  }
  std::vector<Mapping> map;
  std::string_view rest(text.data(), size);
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    map.push_back(parse_mapping(rest.substr(0, end)));
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return map;
}

}  // namespace ckpt::capture
