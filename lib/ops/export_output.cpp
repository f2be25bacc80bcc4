// SPDX-License-Identifier: Apache-2.0
#include "ops/export_output.hpp"

#include "os/small_file.hpp"

#include <ckpt/error.hpp>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#include <cerrno>
#include <cstdio>
#include <utility>

namespace ckpt::ops {
namespace {

constexpr std::size_t gather_size = 1U << 20U;

bool is_stream(const std::string& path) {
  const auto status = os::stat_path(path);
  return status && !S_ISREG(status->st_mode) && !S_ISDIR(status->st_mode);
}

void require_free(const std::string& path, bool force) {
  const auto status = os::stat_path(path, false);
  if (!status) return;
  if (S_ISDIR(status->st_mode)) throw Error(Errc::exists, "'" + path + "' is a directory");
  if (!force) throw Error(Errc::exists, "'" + path + "' is there already").with_hint("use --force to replace it");
}

void require_room(const std::string& directory, const std::string& path, std::uint64_t size) {
  const std::uint64_t available = os::free_space(directory);
  if (size <= available) return;
  throw Error(Errc::no_space, "'" + path + "' needs " + std::to_string(size) + " bytes, and there is room for " +
                                  std::to_string(available));
}

}  // namespace

ExportOutput::ExportOutput(const std::string& path, bool force, std::uint64_t size) : name_(path) {
  if (is_stream(path)) {
    owned_ = os::open(path, O_WRONLY | O_NOCTTY);
  } else {
    require_free(path, force);
    const std::string directory = os::parent_of(path);
    require_room(directory, path, size);
    std::string temporary = directory + "/.ckpt-export." + os::unique_name();
    owned_ = os::open(temporary, O_WRONLY | O_CREAT | O_EXCL, 0666);
    temporary_ = std::move(temporary);
  }
  fd_ = owned_.get();
}

ExportOutput::ExportOutput(int fd) : name_("the output"), fd_(fd) {}

ExportOutput::~ExportOutput() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void ExportOutput::send(ByteView data) {
  while (!data.empty()) {
    const ssize_t n = ::write(fd_, data.data(), data.size());
    if (n >= 0) {
      data = data.subspan(static_cast<std::size_t>(n));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) os::throw_errno(errno, "cannot write '" + name_ + "'");
    // A borrowed descriptor may be one that doesn't block.
    pollfd ready{.fd = fd_, .events = POLLOUT, .revents = 0};
    if (::poll(&ready, 1, -1) < 0 && errno != EINTR) os::throw_errno(errno, "cannot write '" + name_ + "'");
  }
}

void ExportOutput::flush() {
  send(gathered_);
  gathered_.clear();
}

void ExportOutput::write(ByteView data) {
  written_ += data.size();
  if (gathered_.size() + data.size() > gather_size) flush();
  if (data.size() >= gather_size) {
    send(data);
  } else {
    append(gathered_, data);
  }
}

void ExportOutput::commit() {
  flush();
  if (temporary_.empty()) {
    if (owned_.valid()) owned_.close(name_);
    return;
  }
  os::sync(owned_, name_);
  owned_.close(name_);
  if (::rename(temporary_.c_str(), name_.c_str()) != 0) os::throw_errno(errno, "cannot rename to '" + name_ + "'");
  temporary_.clear();
  os::sync_directory(os::parent_of(name_));
}

}  // namespace ckpt::ops
