// SPDX-License-Identifier: Apache-2.0
// Reads of a file run ahead: while one piece is used the next ones are on their way.
#include "transport/pipe_replica.hpp"

#include "transport/replica_messages.hpp"

#include <ckpt/error.hpp>

#include <algorithm>

namespace ckpt::transport {
namespace {

constexpr std::size_t most_ahead = 8;
constexpr auto between_requester_signs = std::chrono::seconds(10);

std::string key_of(const FileName& file) {
  FieldWriter out;
  put(out, file);
  const Bytes payload = out.take();
  return std::string(as_text(payload));
}

}  // namespace

PipeReplica::PipeReplica(Wire wire, std::shared_ptr<const void> lifeline)
    : lifeline_(std::move(lifeline)), wire_(std::move(wire)) {
  FieldWriter out;
  put(out, Hello{.version = protocol_version, .features = 0});
  wire_.send(MessageType::hello, out.take());
  const Message message = wire_.receive();
  if (message.type != MessageType::hello)
    throw Error(Errc::malformed, "'" + wire_.peer() + "' is no ckpt-sync: it doesn't say hello");
  FieldReader in(message.payload);
  const Hello hello = get_hello(in);
  if (hello.version == 0) throw Error(Errc::unsupported, "'" + wire_.peer() + "' speaks no version of the protocol");
  alive_ = std::make_unique<SignOfLife>(between_requester_signs, [this] { send(MessageType::alive, {}); });
}

void PipeReplica::send(MessageType type, ByteView payload) {
  const std::lock_guard lock(sending_);
  wire_.send(type, payload);
}

Bytes PipeReplica::answer() {
  while (true) {
    Message message = wire_.receive();
    switch (message.type) {
      case MessageType::alive: continue;
      case MessageType::done: return std::move(message.payload);
      case MessageType::failure: {
        FieldReader in(message.payload);
        throw get_error(in, wire_.peer());
      }
      default: throw Error(Errc::malformed, "'" + wire_.peer() + "' answers something else than was asked");
    }
  }
}

Bytes PipeReplica::ask(MessageType type, ByteView payload) {
  settle_reads();
  send(type, payload);
  return answer();
}

Inventory PipeReplica::inventory() {
  const Bytes payload = ask(MessageType::inventory, {});
  FieldReader in(payload);
  Inventory inventory = get_inventory(in);
  in.end();
  return inventory;
}

std::string PipeReplica::manifest(const format::BaseCheckpoint& checkpoint, bool retired) {
  FieldWriter out;
  put(out, checkpoint);
  out.number(retired ? 1 : 0);
  const Bytes payload = ask(MessageType::manifest, out.take());
  return std::string(as_text(payload));
}

void PipeReplica::request(const Ahead& ahead) {
  FieldWriter out;
  out.number(ahead.offset).number(ahead.size);
  Bytes payload = out.take();
  append(payload, as_bytes(ahead.file));
  send(MessageType::read, payload);
  ahead_.push_back(ahead);
}

/// Answers that no one waits for any more.
void PipeReplica::settle_reads() {
  while (!ahead_.empty()) {
    ahead_.pop_front();
    try {
      (void)answer();
    } catch (const Error& error) {
      if (error.code() == Errc::busy || error.code() == Errc::interrupted) throw;  // the connection's
    }
  }
}

void PipeReplica::read(const FileName& file, std::uint64_t offset, std::span<std::byte> into) {
  const std::string key = key_of(file);
  const bool is_next = !ahead_.empty() && ahead_.front().file == key && ahead_.front().offset == offset &&
                       ahead_.front().size == into.size();
  if (!is_next) {
    settle_reads();
    request({.file = key, .offset = offset, .size = into.size()});
  }
  // Pieces of full size go on: most files are read from one end to the other. A read beyond the end fails, and no one
  // asks for it.
  while (into.size() == max_piece && ahead_.size() < most_ahead) {
    request({.file = key, .offset = ahead_.back().offset + max_piece, .size = max_piece});
  }
  ahead_.pop_front();
  const Bytes bytes = answer();
  if (bytes.size() != into.size()) throw Error(Errc::malformed, "'" + wire_.peer() + "' sends other bytes than asked");
  std::copy(bytes.begin(), bytes.end(), into.begin());
}

std::optional<std::string> PipeReplica::other_form(const FormRequest& request) {
  FieldWriter out;
  put(out, request);
  const Bytes payload = ask(MessageType::other_form, out.take());
  if (payload.empty()) return std::nullopt;
  return std::string(as_text(payload));
}

Bytes PipeReplica::read_block(const format::BaseCheckpoint& checkpoint, std::uint32_t rank, std::uint64_t block) {
  FieldWriter out;
  put(out, checkpoint);
  out.number(rank).number(block);
  return ask(MessageType::read_block, out.take());
}

std::optional<std::vector<std::uint64_t>> PipeReplica::prepare(const Offer& offer) {
  FieldWriter out;
  put(out, offer);
  const Bytes payload = ask(MessageType::prepare, out.take());
  FieldReader in(payload);
  if (in.truth()) return std::nullopt;
  std::vector<std::uint64_t> held(in.count(8));
  for (std::uint64_t& bytes : held) bytes = in.number();
  in.end();
  return held;
}

std::optional<std::uint64_t> PipeReplica::prepare_shard(const ReplicaShard& shard) {
  FieldWriter out;
  put(out, shard);
  const Bytes payload = ask(MessageType::prepare_shard, out.take());
  FieldReader in(payload);
  if (in.truth()) return std::nullopt;
  const std::uint64_t held = in.number();
  in.end();
  return held;
}

void PipeReplica::write(std::uint32_t shard, ByteView bytes) {
  FieldWriter out;
  out.number(shard);
  Bytes payload = out.take();
  append(payload, bytes);
  send(MessageType::write, payload);
}

bool PipeReplica::commit() {
  const Bytes payload = ask(MessageType::commit, {});
  FieldReader in(payload);
  return in.truth();
}

void PipeReplica::retire(const format::BaseCheckpoint& checkpoint) {
  FieldWriter out;
  put(out, checkpoint);
  (void)ask(MessageType::retire, out.take());
}

Removal PipeReplica::remove(const std::vector<std::uint64_t>& steps) {
  FieldWriter out;
  put(out, steps);
  const Bytes payload = ask(MessageType::remove, out.take());
  FieldReader in(payload);
  return get_removal(in);
}

}  // namespace ckpt::transport
