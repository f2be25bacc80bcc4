// SPDX-License-Identifier: Apache-2.0
// A report that didn't reach its reader is trouble: exit 0 is only said after close().
#include "cli/standard_output.hpp"

#include <fmt/format.h>
#include <unistd.h>
#include <ckpt/error.hpp>

#include <cerrno>
#include <cstring>
#include <utility>

namespace ckpt::cli {
namespace {

constexpr std::size_t buffer_size = 64 << 10;

[[noreturn]] void fail(int code) {
  throw Error(code == ENOSPC ? Errc::no_space : Errc::io,
              fmt::format("cannot write standard output: {}", std::strerror(code)), code);
}

}  // namespace

void StandardOutput::write(std::string_view text) {
  buffer_ += text;
  if (buffer_.size() >= buffer_size) flush();
}

void StandardOutput::flush() {
  // Taken out first, so that a failure isn't met again with the same bytes.
  const std::string pending = std::exchange(buffer_, {});
  for (std::size_t at = 0; at < pending.size();) {
    const ssize_t wrote = ::write(STDOUT_FILENO, pending.data() + at, pending.size() - at);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail(errno);
    at += static_cast<std::size_t>(wrote);
  }
}

void StandardOutput::close() {
  flush();
  if (::close(STDOUT_FILENO) != 0 && errno != EINTR) fail(errno);
}

}  // namespace ckpt::cli
