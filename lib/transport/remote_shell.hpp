// SPDX-License-Identifier: Apache-2.0
// A command on another host, over a remote shell: RSH [USER@]HOST COMMAND, as rsync and scp do it.
#pragma once

#include "os/fd.hpp"

#include <sys/types.h>
#include <optional>
#include <string>
#include <vector>

namespace ckpt::transport {

/// [USER@]HOST:PATH, told by a colon before the first slash. "./a:b" is a local path.
struct RemotePath {
  std::string host;  ///< with the user, if one is named
  std::string path;
};
[[nodiscard]] bool is_remote(const std::string& text);
/// Throws invalid_argument for an empty part, or a host that begins with '-', which a shell would take for an option.
[[nodiscard]] RemotePath parse_remote(const std::string& text);

/// A text as one word of a POSIX shell.
[[nodiscard]] std::string shell_word(const std::string& text);

/// Where a child's standard error goes.
enum class ErrorStream {
  shared,  ///< to this process's
  own,     ///< into a pipe
};

/// A child process with its standard streams on pipes. The destructor closes the pipes, waits a moment for its end, and
/// kills it then.
class ChildProcess {
 public:
  /// Throws not_found if there's no such program, io if it can't be started.
  explicit ChildProcess(const std::vector<std::string>& command, ErrorStream errors = ErrorStream::shared);
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess();

  /// To read its output and write its input: given away once.
  [[nodiscard]] os::Fd take_output() { return std::move(output_); }
  [[nodiscard]] os::Fd take_input() { return std::move(input_); }
  [[nodiscard]] os::Fd take_errors() { return std::move(errors_); }

  /// Its status as waitpid() has it, once it has ended.
  [[nodiscard]] std::optional<int> ended();
  /// Asks it to end, if it hasn't.
  void terminate();

 private:
  pid_t pid_ = -1;
  std::optional<int> status_;
  os::Fd output_;
  os::Fd input_;
  os::Fd errors_;
};

}  // namespace ckpt::transport
