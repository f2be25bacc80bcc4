// SPDX-License-Identifier: Apache-2.0
#include "capture/userfault.hpp"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

namespace ckpt::capture {
namespace {

// Newer than some headers.
constexpr unsigned long ioc_new = _IO(0xAA, 0x00);
constexpr std::uint64_t feature_wp_unpopulated = std::uint64_t{1} << 13U;

constexpr std::uint64_t needed_features =
    UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_REMAP;

[[noreturn]] void throw_unsupported(const std::string& why, int error = 0) {
  throw Error(Errc::unsupported, "cannot write-protect memory: " + why, error);
}

/// Never for user mode only: a read() into a protected page must be noticed, too.
os::Fd open_descriptor() {
  constexpr int flags = O_CLOEXEC | O_NONBLOCK;
  const os::Fd device(::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC));
  if (device.valid()) {
    os::Fd fd(::ioctl(device.get(), ioc_new, flags));
    if (fd.valid()) return fd;
  }
  os::Fd fd(static_cast<int>(::syscall(SYS_userfaultfd, flags)));
  if (fd.valid()) return fd;
  const int error = errno;
  if (error == ENOSYS) throw_unsupported("this kernel or its sandbox has no userfaultfd", error);
  if (error == EPERM || error == EACCES) {
    throw_unsupported("userfaultfd isn't permitted (vm.unprivileged_userfaultfd, /dev/userfaultfd, or a sandbox)",
                      error);
  }
  throw_unsupported(std::string("userfaultfd: ") + std::strerror(error), error);
}

/// What the kernel can do. Asking spends a descriptor.
std::uint64_t known_features() {
  const os::Fd fd = open_descriptor();
  uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
  if (::ioctl(fd.get(), UFFDIO_API, &api) != 0) throw_unsupported(std::strerror(errno), errno);
  return api.features;
}

int set_protection(int fd, Interval at, std::uint64_t mode) noexcept {
  uffdio_writeprotect call{.range = {.start = at.begin, .len = at.size()}, .mode = mode};
  return ::ioctl(fd, UFFDIO_WRITEPROTECT, &call) == 0 ? 0 : errno;
}

}  // namespace

Userfault::Userfault() {
  const std::uint64_t known = known_features();
  if ((known & needed_features) != needed_features) throw_unsupported("this kernel is too old for it");
  protects_untouched_ = (known & feature_wp_unpopulated) != 0;
  fd_ = open_descriptor();
  uffdio_api api{
      .api = UFFD_API, .features = needed_features | (protects_untouched_ ? feature_wp_unpopulated : 0), .ioctls = 0};
  if (::ioctl(fd_.get(), UFFDIO_API, &api) != 0) throw_unsupported(std::strerror(errno), errno);

  // Some sandboxes allow the descriptor and not its calls.
  MappedVector<std::byte> page(page_size());
  const auto address = reinterpret_cast<std::uintptr_t>(page.data());
  const Interval at{address, address + page_size()};
  int error = watch(at);
  if (error == 0) error = protect(at);
  if (error == 0) error = lift(at);
  if (error == 0) error = unwatch(at);
  if (error != 0) throw_unsupported(std::strerror(error), error);
}

int Userfault::watch(Interval at) const noexcept {
  uffdio_register call{.range = {.start = at.begin, .len = at.size()}, .mode = UFFDIO_REGISTER_MODE_WP, .ioctls = 0};
  return ::ioctl(fd_.get(), UFFDIO_REGISTER, &call) == 0 ? 0 : errno;
}

int Userfault::unwatch(Interval at) const noexcept {
  uffdio_range call{.start = at.begin, .len = at.size()};
  return ::ioctl(fd_.get(), UFFDIO_UNREGISTER, &call) == 0 ? 0 : errno;
}

int Userfault::protect(Interval at) const noexcept {
  return set_protection(fd_.get(), at, UFFDIO_WRITEPROTECT_MODE_WP);
}

int Userfault::lift(Interval at) const noexcept { return set_protection(fd_.get(), at, 0); }

void Userfault::wake(Interval at) const noexcept {
  uffdio_range call{.start = at.begin, .len = at.size()};
  (void)::ioctl(fd_.get(), UFFDIO_WAKE, &call);
}

bool Userfault::is_memory_going() const noexcept {
  // The kernel answers this before it looks at the range, which is none.
  return set_protection(fd_.get(), Interval{}, UFFDIO_WRITEPROTECT_MODE_WP) == EAGAIN;
}

UserfaultMessage Userfault::read_message() const noexcept {
  using Kind = UserfaultMessage::Kind;
  while (true) {
    uffd_msg message;
    const ssize_t n = ::read(fd_.get(), &message, sizeof message);
    if (n < 0 && errno == EINTR) continue;
    if (n != static_cast<ssize_t>(sizeof message)) return {};
    switch (message.event) {
      case UFFD_EVENT_PAGEFAULT: {
        const std::uintptr_t page = page_down(message.arg.pagefault.address);
        return {.kind = Kind::write, .at = {page, page + page_size()}};
      }
      case UFFD_EVENT_UNMAP:
      case UFFD_EVENT_REMOVE: return {.kind = Kind::gone, .at = {message.arg.remove.start, message.arg.remove.end}};
      case UFFD_EVENT_REMAP:
        return {.kind = Kind::gone, .at = {message.arg.remap.from, message.arg.remap.from + message.arg.remap.len}};
      default: break;
    }
  }
}

}  // namespace ckpt::capture
