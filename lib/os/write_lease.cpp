// SPDX-License-Identifier: Apache-2.0
// A read lease is granted only while no one has the file open for writing. It's given back at once.
#include "os/write_lease.hpp"

#include <fcntl.h>
#include <cerrno>
#include <csignal>

namespace ckpt::os {

bool is_open_for_writing(const Fd& fd) {
  // Should someone open the file in the instant that the lease is held, the kernel's note goes to a signal that is
  // ignored by default, and not to SIGIO, which would end the process.
  if (::fcntl(fd.get(), F_SETSIG, SIGURG) != 0) return false;
  if (::fcntl(fd.get(), F_SETLEASE, F_RDLCK) == 0) {
    (void)::fcntl(fd.get(), F_SETLEASE, F_UNLCK);
    return false;
  }
  return errno == EAGAIN;
}

}  // namespace ckpt::os
