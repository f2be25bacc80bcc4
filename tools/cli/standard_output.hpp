// SPDX-License-Identifier: Apache-2.0
// Standard output with a buffer whose every failure is an error. One thread only.
#pragma once

#include <string>
#include <string_view>

namespace ckpt::cli {

class StandardOutput {
 public:
  /// Throws Errc::io or no_space; with EPIPE as its errno if the reader is gone.
  void write(std::string_view text);
  void flush();
  /// Flushes, and closes the descriptor, since some file systems tell of a full disk only then.
  void close();

 private:
  std::string buffer_;
};

}  // namespace ckpt::cli
