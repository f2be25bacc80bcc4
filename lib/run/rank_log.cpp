// SPDX-License-Identifier: Apache-2.0
#include "run/rank_log.hpp"

#include "os/small_file.hpp"

#include <fcntl.h>
#include <algorithm>
#include <cstdio>
#include <span>

namespace ckpt::run {
namespace {

constexpr std::size_t longest_line = 2000;
constexpr std::size_t remembered = std::size_t{64} << 10U;

os::Fd open_log(const std::string& path) { return os::open(path, O_WRONLY | O_CREAT | O_APPEND, 0666); }

}  // namespace

void RankLog::open() {
  if (const auto slash = path_.rfind('/'); slash != std::string::npos) os::make_directories(path_.substr(0, slash));
  file_ = open_log(path_);
  size_ = static_cast<std::uint64_t>(os::stat_of(file_, path_).st_size);
}

bool RankLog::write(std::string_view output) {
  remember(output);
  try {
    if (!file_.valid()) open();
    if (size_ > 0 && size_ + output.size() > limits_.file_bytes) rotate();
    os::write_all(file_, std::as_bytes(std::span(output)), path_);
    size_ += output.size();
    return true;
  } catch (const Error&) {
    return false;
  }
}

void RankLog::rotate() {
  const auto numbered = [&](unsigned n) { return n == 0 ? path_ : path_ + "." + std::to_string(n); };
  // One that isn't there yet can't be moved.
  for (unsigned n = limits_.old_files; n > 0; --n) (void)std::rename(numbered(n - 1).c_str(), numbered(n).c_str());
  if (limits_.old_files == 0) (void)std::remove(path_.c_str());
  file_ = open_log(path_);
  size_ = 0;
}

void RankLog::remember(std::string_view output) {
  recent_ += output.substr(output.size() - std::min(output.size(), remembered));
  if (recent_.size() > 2 * remembered) recent_.erase(0, recent_.size() - remembered);
}

std::vector<std::string> RankLog::last_lines(std::size_t count) const {
  std::vector<std::string> lines;
  std::size_t end = recent_.size();
  if (end > 0 && recent_[end - 1] == '\n') --end;
  while (lines.size() < count && end > 0) {
    const std::size_t before = recent_.rfind('\n', end - 1);
    const std::size_t begin = before == std::string::npos ? 0 : before + 1;
    // Of a line without end, as progress bars draw, the end is what counts.
    const std::size_t size = std::min(end - begin, longest_line);
    lines.push_back(recent_.substr(end - size, size));
    if (begin == 0) break;
    end = before;
  }
  std::reverse(lines.begin(), lines.end());
  return lines;
}

}  // namespace ckpt::run
