// SPDX-License-Identifier: Apache-2.0
// Work that gives way to all other work.
#pragma once

namespace ckpt::os {

/// This thread, and those that it starts from now on, get the processor and the disk when no one else wants them: the
/// lowest nice level, and the lowest best-effort I/O priority. Where the system refuses, they stay as they are.
void give_way_to_others();

/// For a process with a session of its own, which some kernels schedule as one group: the group's nice level.
void let_session_give_way();

}  // namespace ckpt::os
