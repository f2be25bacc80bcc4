// SPDX-License-Identifier: Apache-2.0
// The kernel copies, so that what isn't there is an error and no signal. Some sandboxes forbid process_vm_readv();
// /proc/self/mem does the same, and reads also what has been made unreadable.
#include "capture/owner_memory.hpp"

#include "capture/mapped_memory.hpp"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>
#include <cerrno>

namespace ckpt::capture {
namespace {

bool read_by_file(std::uintptr_t address, std::span<std::byte> into) noexcept {
  const int fd = ::open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  std::size_t done = 0;
  while (done < into.size()) {
    const ssize_t n = ::pread(fd, into.data() + done, into.size() - done, static_cast<off_t>(address + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<std::size_t>(n);
  }
  (void)::close(fd);
  return done == into.size();
}

}  // namespace

bool read_own_memory(std::uintptr_t address, std::span<std::byte> into) noexcept {
  const pid_t self = ::getpid();
  std::size_t done = 0;
  while (done < into.size()) {
    const iovec local{.iov_base = into.data() + done, .iov_len = into.size() - done};
    const iovec remote{.iov_base = bytes_at(address + done), .iov_len = into.size() - done};
    const ssize_t n = ::process_vm_readv(self, &local, 1, &remote, 1, 0);
    if (n <= 0) return read_by_file(address + done, into.subspan(done));
    done += static_cast<std::size_t>(n);
  }
  return true;
}

}  // namespace ckpt::capture
