// SPDX-License-Identifier: Apache-2.0
// Processes below this one: starting them, and ending all of them. Who calls this is the parent of every orphan below
// it (PR_SET_CHILD_SUBREAPER), so that no one can leave the tree.
#pragma once

#include <sys/types.h>
#include <chrono>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace ckpt::run {

struct Start {
  std::vector<std::string> command;      ///< looked up in the PATH of `environment`
  std::vector<std::string> environment;  ///< NAME=VALUE
  int output = -1;                       ///< standard output and error; -1: as here
};

/// A session of its own that dies with this process, without core files, and with nothing on its standard input. Throws
/// not_found or io if the command can't be run. The calling process has one thread.
[[nodiscard]] pid_t start_process(const Start& start);

/// Whatever is still running below this process is killed, but `spared` ones and what they started, and the workers of
/// ckpt-save --detach: these finish what was handed to them. Reaps what it kills, and gives each pid with its wait
/// status to `ended`. Returns the pids of those that wouldn't die in time: they hang in the kernel.
std::vector<pid_t> kill_all_below(const std::set<pid_t>& spared, std::chrono::milliseconds patience,
                                  const std::function<void(pid_t, int)>& ended);

/// True if the process, or one in its session, has been stopped by a signal.
[[nodiscard]] bool is_stopped(pid_t session);

/// A signal to all processes of a session's leader's group.
void signal_group(pid_t leader, int signal);

/// How many processes the kernel has killed for memory, on this machine since it started; 0 where it doesn't say.
[[nodiscard]] unsigned long long memory_kills();

}  // namespace ckpt::run
