// SPDX-License-Identifier: Apache-2.0
// The whole list is read before the first name is used, so that a list that breaks off does nothing.
#include "cli/name_list.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <ckpt/error.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "cli/signals.hpp"

namespace ckpt::cli {
namespace {

constexpr std::size_t most_bytes = 1 << 30;

[[noreturn]] void fail(const std::string& path, int code) {
  throw Error(code == ENOENT ? Errc::not_found : Errc::io,
              fmt::format("cannot read list '{}': {}", path, std::strerror(code)), code);
}

std::string read_all(const std::string& path, int fd) {
  std::string text;
  std::array<char, 64 << 10> piece;
  for (;;) {
    if (pending_signal() != 0) throw Error(Errc::interrupted, "interrupted");
    const ssize_t got = ::read(fd, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path, errno);
    if (got == 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(got));
    if (text.size() > most_bytes) throw Error(Errc::invalid_argument, fmt::format("list '{}' is beyond 1 GiB", path));
  }
}

std::string read_file(const std::string& path) {
  if (path == "-") return read_all(path, STDIN_FILENO);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(path, errno);
  try {
    std::string text = read_all(path, fd);
    ::close(fd);
    return text;
  } catch (...) {
    ::close(fd);
    throw;
  }
}

}  // namespace

std::vector<std::string> read_name_list(const std::string& path, char end) {
  const std::string text = read_file(path);
  std::vector<std::string> names;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t stop = std::min(text.find(end, at), text.size());
    if (stop > at) names.push_back(text.substr(at, stop - at));
    at = stop + 1;
  }
  return names;
}

}  // namespace ckpt::cli
