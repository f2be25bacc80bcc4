// SPDX-License-Identifier: Apache-2.0
// The process that drains a spool after the one that filled it has ended.
#pragma once

#include <sys/types.h>

#include <string>

namespace ckpt::cli {

struct WorkerPlace {
  std::string store;
  std::string spool;
  unsigned jobs = 0;
};

/// Starts a process of its own session, without any of this one's descriptors, that ends once nothing is staged, or at
/// once if another drains the spool. What it has to say goes to SPOOL/worker.log. Throws Errc::io if it can't be
/// started. Call it while this process has one thread.
void start_worker(const WorkerPlace& place);

/// The same as a child of this process, which has to wait for it.
[[nodiscard]] pid_t fork_worker(const WorkerPlace& place);

}  // namespace ckpt::cli
