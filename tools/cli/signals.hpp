// SPDX-License-Identifier: Apache-2.0
// INT, TERM and HUP ask for an end, USR1 for one line of progress. Handlers only set flags; a second INT ends at once.
#pragma once

namespace ckpt::cli {

/// Installs the handlers. A signal that the parent ignores (nohup) stays ignored.
void catch_signals();

/// The signal that asked for an end, or 0. Callable from any thread.
[[nodiscard]] int pending_signal();

/// True once for each USR1 or run of them.
[[nodiscard]] bool take_progress_request();

/// True if the default action of SIGPIPE was in place at the start.
[[nodiscard]] bool dies_of_broken_pipe();

/// Restores the default action and raises the signal. Comes back only if the signal is blocked.
void raise_again(int signal);

}  // namespace ckpt::cli
