// SPDX-License-Identifier: Apache-2.0
#include "os/priority.hpp"

#include "os/fd.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ckpt::os {
namespace {

// From linux/ioprio.h, which old kernels' headers don't have.
constexpr int who_process = 1;
constexpr int class_best_effort = 2;
constexpr int class_shift = 13;
constexpr int lowest_level = 7;

constexpr int lowest_nice = 19;

}  // namespace

void give_way_to_others() {
  // On Linux both are a thread's own. Being refused costs speed elsewhere and no correctness.
  (void)::setpriority(PRIO_PROCESS, 0, lowest_nice);
  (void)::syscall(SYS_ioprio_set, who_process, 0, (class_best_effort << class_shift) | lowest_level);
}

void let_session_give_way() {
  const Fd group(::open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC));
  if (!group.valid()) return;
  const ssize_t written = ::write(group.get(), "19", 2);
  (void)written;  // as above
}

}  // namespace ckpt::os
