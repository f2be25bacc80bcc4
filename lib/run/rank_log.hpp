// SPDX-License-Identifier: Apache-2.0
// A rank's output in a file of its own, rotated by size, and its last lines in memory.
#pragma once

#include "os/fd.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ckpt::run {

struct LogLimits {
  std::uint64_t file_bytes = std::uint64_t{64} << 20U;  ///< then NAME becomes NAME.1, NAME.1 NAME.2, ...
  unsigned old_files = 3;                               ///< that are kept besides
};

class RankLog {
 public:
  RankLog(std::string path, LogLimits limits) : path_(std::move(path)), limits_(limits) {}

  /// Makes the file, and its directory. One that is there is gone on with. Throws if that can't be; the first write
  /// tries it again.
  void open();
  /// A log that can't be written is no reason to stop a training: false, and what is said is lost.
  [[nodiscard]] bool write(std::string_view output);
  [[nodiscard]] const std::string& path() const { return path_; }
  /// The last lines, the last one perhaps without its end, long ones without their beginning.
  [[nodiscard]] std::vector<std::string> last_lines(std::size_t count) const;

 private:
  void rotate();
  void remember(std::string_view output);

  std::string path_;
  LogLimits limits_;
  os::Fd file_;
  std::uint64_t size_ = 0;
  std::string recent_;
};

}  // namespace ckpt::run
