// SPDX-License-Identifier: Apache-2.0
#include "transport/wire.hpp"

#include "core/stop.hpp"

#include <ckpt/error.hpp>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <cstring>

namespace ckpt::transport {
namespace {

constexpr std::size_t head_size = 16;

[[noreturn]] void throw_malformed(const std::string& what) { throw Error(Errc::malformed, what); }

std::uint64_t checksum_of(MessageType type, ByteView payload) {
  return xxh3_64(payload) ^ (static_cast<std::uint64_t>(type) * 0x9E3779B97F4A7C15U);
}

}  // namespace

FieldWriter& FieldWriter::number(std::uint64_t value) {
  append_le(out_, value);
  return *this;
}

FieldWriter& FieldWriter::text(std::string_view value) { return bytes(as_bytes(value)); }

FieldWriter& FieldWriter::bytes(ByteView value) {
  append_le(out_, static_cast<std::uint32_t>(value.size()));
  append(out_, value);
  return *this;
}

FieldWriter& FieldWriter::digest(const Digest& value) { return text(to_hex(value)); }

std::uint64_t FieldReader::number(std::uint64_t most) {
  const auto value = reader_.number<std::uint64_t>();
  if (!value || *value > most) throw_malformed("a message lacks a number, or has one out of its range");
  return *value;
}

std::size_t FieldReader::count(std::size_t each) {
  return static_cast<std::size_t>(number(reader_.remaining() / each));
}

std::string FieldReader::text(std::size_t longest) { return std::string(as_text(bytes(longest))); }

ByteView FieldReader::bytes(std::size_t longest) {
  const auto size = reader_.number<std::uint32_t>();
  if (!size || *size > longest) throw_malformed("a message lacks a text, or has one that's too long");
  const auto data = reader_.take(*size);
  if (!data) throw_malformed("a message ends within a text");
  return *data;
}

Digest FieldReader::digest() {
  const auto digest = digest_from_hex(text(32));
  if (!digest) throw_malformed("a message has something else where a digest should be");
  return *digest;
}

void FieldReader::end() const {
  if (reader_.remaining() != 0) throw_malformed("a message is longer than it should be");
}

Wire::Wire(os::Fd in, os::Fd out, std::string peer, std::chrono::milliseconds patience, const Monitor& monitor)
    : in_(std::move(in)), out_(std::move(out)), peer_(std::move(peer)), patience_(patience), monitor_(monitor) {
  // So that no call waits longer than poll(2) has promised.
  in_flags_ = os::set_nonblocking(in_, "a pipe");
  out_flags_ = os::set_nonblocking(out_, "a pipe");
}

Wire::~Wire() {
  // In reverse order: both may be one open file.
  if (out_.valid()) (void)::fcntl(out_.get(), F_SETFL, out_flags_);
  if (in_.valid()) (void)::fcntl(in_.get(), F_SETFL, in_flags_);
}

void Wire::wait_for(int fd, short events) {
  constexpr int turn = 200;
  const auto deadline = std::chrono::steady_clock::now() + patience_;
  while (true) {
    require_no_stop(monitor_);
    if (patience_.count() > 0 && std::chrono::steady_clock::now() >= deadline)
      throw Error(Errc::busy, "'" + peer_ + "' is silent");
    pollfd item{.fd = fd, .events = events, .revents = 0};
    // In short turns, since a signal may come between the look and the wait.
    const int ready = ::poll(&item, 1, turn);
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) os::throw_errno(errno, "cannot wait for '" + peer_ + "'");
  }
}

bool Wire::read_exactly(std::span<std::byte> into, bool may_end) {
  std::size_t done = 0;
  while (done < into.size()) {
    const ssize_t n = ::read(in_.get(), into.data() + done, into.size() - done);
    if (n > 0) {
      done += static_cast<std::size_t>(n);
      continue;
    }
    if (n == 0) {
      if (done == 0 && may_end) return false;
      throw Error(Errc::busy, "'" + peer_ + "' hung up");
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      wait_for(in_.get(), POLLIN);
    } else if (errno != EINTR) {
      os::throw_errno(errno, "cannot read from '" + peer_ + "'");
    }
  }
  return true;
}

void Wire::write_exactly(ByteView data) {
  while (!data.empty()) {
    const ssize_t n = ::write(out_.get(), data.data(), data.size());
    if (n >= 0) {
      data = data.subspan(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      wait_for(out_.get(), POLLOUT);
    } else if (errno == EPIPE) {
      throw Error(Errc::busy, "'" + peer_ + "' hung up");
    } else if (errno != EINTR) {
      os::throw_errno(errno, "cannot write to '" + peer_ + "'");
    }
  }
}

void Wire::send(MessageType type, ByteView payload) {
  if (payload.size() > max_payload)
    throw Error(Errc::unsupported,
                "a message of " + std::to_string(payload.size()) + " bytes is more than can be sent");
  if (payload.size() > max_payload)
    throw Error(Errc::unsupported,
                "a message of " + std::to_string(payload.size()) + " bytes is more than '" + peer_ + "' would take");
  std::array<std::byte, head_size> head{};
  store_le(head.data(), static_cast<std::uint32_t>(payload.size()));
  head[4] = static_cast<std::byte>(type);
  store_le(head.data() + 8, checksum_of(type, payload));
  write_exactly(head);
  write_exactly(payload);
}

std::optional<Message> Wire::receive_or_end() {
  std::array<std::byte, head_size> head{};
  if (!read_exactly(head, true)) return std::nullopt;
  const auto size = load_le<std::uint32_t>(head.data());
  const bool zeros = head[5] == std::byte{0} && head[6] == std::byte{0} && head[7] == std::byte{0};
  if (size > max_payload || !zeros) throw_malformed("'" + peer_ + "' sends something that is no message");
  Message message{.type = static_cast<MessageType>(head[4]), .payload = Bytes(size)};
  read_exactly(message.payload, false);
  if (checksum_of(message.type, message.payload) != load_le<std::uint64_t>(head.data() + 8))
    throw_malformed("a message of '" + peer_ + "' is damaged");
  return message;
}

Message Wire::receive() {
  auto message = receive_or_end();
  if (!message) throw Error(Errc::busy, "'" + peer_ + "' hung up");
  return std::move(*message);
}

}  // namespace ckpt::transport
