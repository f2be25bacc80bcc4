// SPDX-License-Identifier: Apache-2.0
// Messages between two ends of a pipe. Nothing that comes in is trusted: sizes are bounded before anything is
// allocated, every message carries its checksum, and a field that isn't there is an error.
//
// Message:  0  4  size of the payload, at most max_payload
//           4  1  type
//           5  3  zero
//           8  8  XXH3-64 of the payload, exclusive-ored with the type times 9E3779B97F4A7C15h
//          16     payload: numbers little-endian; texts and byte strings after their size in 4 bytes
#pragma once

#include "core/bytes.hpp"
#include "core/digest.hpp"
#include "os/fd.hpp"

#include <ckpt/monitor.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace ckpt::transport {

inline constexpr std::uint64_t max_payload = 9U << 20U;
/// Bytes of a file in one message.
inline constexpr std::uint64_t max_piece = 1U << 20U;

enum class MessageType : std::uint8_t {
  hello = 1,
  // Requests.
  inventory = 16,
  manifest = 17,
  read = 18,
  read_block = 19,
  prepare = 20,
  write = 21,  ///< has no answer; what goes wrong is said by `commit`
  commit = 22,
  retire = 23,
  remove = 24,
  prepare_shard = 25,
  other_form = 26,
  // Answers.
  done = 64,
  failure = 65,
  alive = 66,  ///< still at it; from both sides, at any time between other messages
};

struct Message {
  MessageType type = MessageType::done;
  Bytes payload;
};

/// Builds a payload.
class FieldWriter {
 public:
  FieldWriter& number(std::uint64_t value);
  FieldWriter& text(std::string_view value);
  FieldWriter& bytes(ByteView value);
  FieldWriter& digest(const Digest& value);
  [[nodiscard]] Bytes take() { return std::move(out_); }

 private:
  Bytes out_;
};

/// Reads one. Throws Errc::malformed where something is missing or too large.
class FieldReader {
 public:
  explicit FieldReader(ByteView payload) : reader_(payload) {}
  [[nodiscard]] std::uint64_t number(std::uint64_t most = UINT64_MAX);
  [[nodiscard]] bool truth() { return number(1) == 1; }
  /// A count of items that take at least `each` bytes here: bounded by what is left.
  [[nodiscard]] std::size_t count(std::size_t each);
  [[nodiscard]] std::string text(std::size_t longest);
  [[nodiscard]] ByteView bytes(std::size_t longest);
  [[nodiscard]] Digest digest();
  /// Nothing may be left.
  void end() const;

 private:
  ByteReader reader_;
};

/// The two directions of a connection. Not thread-safe.
class Wire {
 public:
  /// `peer` is for messages. `patience`: how long the other side may be silent, or not take anything; then Errc::busy.
  /// A wait ends with Errc::interrupted once the monitor wants to stop.
  Wire(os::Fd in, os::Fd out, std::string peer, std::chrono::milliseconds patience, const Monitor& monitor);

  Wire(Wire&& other) = default;
  Wire& operator=(Wire&&) = delete;
  /// Descriptors that others share block again as before.
  ~Wire();

  void send(MessageType type, ByteView payload);
  /// Throws busy if the other side is gone or silent, malformed for what is no message.
  [[nodiscard]] Message receive();
  /// Nothing at the end of the stream.
  [[nodiscard]] std::optional<Message> receive_or_end();

  [[nodiscard]] const std::string& peer() const { return peer_; }
  [[nodiscard]] std::uint64_t bytes_sent() const { return sent_; }
  [[nodiscard]] std::uint64_t bytes_received() const { return received_; }

 private:
  /// False at the end of the stream, where `may_end` allows it before the first byte.
  bool read_exactly(std::span<std::byte> into, bool may_end);
  void write_exactly(ByteView data);
  void wait_for(int fd, short events);

  os::Fd in_;
  os::Fd out_;
  std::string peer_;
  std::chrono::milliseconds patience_;
  const Monitor& monitor_;
  int in_flags_ = 0;
  int out_flags_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
};

}  // namespace ckpt::transport
