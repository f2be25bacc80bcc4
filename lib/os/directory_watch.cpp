// SPDX-License-Identifier: Apache-2.0
#include "os/directory_watch.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <thread>

namespace ckpt::os {

DirectoryWatch::DirectoryWatch(const std::vector<std::string>& directories)
    : inotify_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
  if (!inotify_.valid()) return;
  for (const std::string& directory : directories) {
    // One that can't be watched is looked at all the same.
    (void)::inotify_add_watch(inotify_.get(), directory.c_str(),
                              IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_ONLYDIR);
  }
}

bool DirectoryWatch::wait(std::chrono::milliseconds patience) {
  if (!inotify_.valid()) {
    std::this_thread::sleep_for(patience);
    return false;
  }
  pollfd item{.fd = inotify_.get(), .events = POLLIN, .revents = 0};
  if (::poll(&item, 1, static_cast<int>(patience.count())) <= 0) return false;
  alignas(inotify_event) std::array<char, 4096> events{};
  while (::read(inotify_.get(), events.data(), events.size()) > 0) continue;
  return true;
}

ProcessWatch::ProcessWatch(int pid) : pid_(pid), handle_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {
  if (has_ended()) throw Error(Errc::not_found, "there is no process " + std::to_string(pid));
}

bool ProcessWatch::has_ended() const {
  if (!handle_.valid()) return ::kill(pid_, 0) != 0 && errno == ESRCH;
  pollfd item{.fd = handle_.get(), .events = POLLIN, .revents = 0};
  return ::poll(&item, 1, 0) > 0;
}

}  // namespace ckpt::os
