// SPDX-License-Identifier: Apache-2.0
#include "run/notify_socket.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace ckpt::run {
namespace {

struct Received {
  ssize_t size = -1;
  bool trusted = false;
};

/// Who sends some, as sd_notify_barrier(3) does, waits for their end.
void close_descriptors(const cmsghdr& part) {
  const std::size_t count = (part.cmsg_len - CMSG_LEN(0)) / sizeof(int);
  for (std::size_t i = 0; i < count; ++i) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(&part) + i * sizeof fd, sizeof fd);
    const os::Fd closed(fd);
  }
}

bool is_ours(const msghdr& message) {
  bool found = false;
  for (const cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(const_cast<msghdr*>(&message), const_cast<cmsghdr*>(part))) {
    if (part->cmsg_level != SOL_SOCKET) continue;
    if (part->cmsg_type == SCM_RIGHTS) close_descriptors(*part);
    if (part->cmsg_type != SCM_CREDENTIALS) continue;
    ucred sender{};
    std::memcpy(&sender, CMSG_DATA(part), sizeof sender);
    found = sender.uid == 0 || sender.uid == ::geteuid();
  }
  return found;
}

Received receive_into(int fd, std::span<char> buffer) {
  iovec place{.iov_base = buffer.data(), .iov_len = buffer.size()};
  alignas(cmsghdr) std::array<char, 256> control{};
  msghdr message{};
  message.msg_iov = &place;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  Received received;
  do {
    received.size = ::recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (received.size < 0 && errno == EINTR);
  if (received.size >= 0) received.trusted = is_ours(message);
  return received;
}

}  // namespace

NotifySocket::NotifySocket() {
  socket_ = os::Fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_.valid()) os::throw_errno(errno, "cannot make a socket for heartbeats");
  const int on = 1;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // With nothing but a family the kernel chooses a free name.
  if (::setsockopt(socket_.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 ||
      ::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address.sun_family) != 0)
    os::throw_errno(errno, "cannot bind a socket for heartbeats");
  socklen_t size = sizeof address;
  if (::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    os::throw_errno(errno, "cannot name a socket for heartbeats");
  const std::size_t name_size = size - offsetof(sockaddr_un, sun_path);
  name_ = "@" + std::string(address.sun_path + 1, name_size - 1);
}

std::optional<Notice> NotifySocket::receive() {
  std::array<char, 4096> buffer;
  while (true) {
    const Received received = receive_into(socket_.get(), buffer);
    if (received.size < 0) return std::nullopt;
    if (received.trusted) return parse_notice({buffer.data(), static_cast<std::size_t>(received.size)});
  }
}

}  // namespace ckpt::run
