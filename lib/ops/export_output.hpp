// SPDX-License-Identifier: Apache-2.0
// Where an export goes: a new file beside its target that is renamed at the end, or a stream.
#pragma once

#include "core/bytes.hpp"
#include "os/fd.hpp"

#include <cstdint>
#include <string>

namespace ckpt::ops {

/// Gathers small writes. The destructor removes a file that wasn't committed. Not thread-safe.
class ExportOutput {
 public:
  /// A path. Errc::exists if something is there and `force` isn't given, or it's a directory; a pipe or a device is
  /// written to as a stream. no_space if the file system has no room for `size` bytes.
  ExportOutput(const std::string& path, bool force, std::uint64_t size);
  /// A borrowed descriptor.
  explicit ExportOutput(int fd);
  ExportOutput(const ExportOutput&) = delete;
  ExportOutput& operator=(const ExportOutput&) = delete;
  ~ExportOutput();

  [[nodiscard]] std::uint64_t written() const { return written_; }
  void write(ByteView data);
  /// Makes everything that was written durable and gives it its name.
  void commit();

 private:
  void flush();
  void send(ByteView data);

  std::string name_;       ///< for messages
  std::string temporary_;  ///< empty: a stream
  os::Fd owned_;
  int fd_ = -1;
  Bytes gathered_;
  std::uint64_t written_ = 0;
};

}  // namespace ckpt::ops
