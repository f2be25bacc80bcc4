// SPDX-License-Identifier: Apache-2.0
#include "transport/replica_server.hpp"

#include "transport/replica_messages.hpp"
#include "transport/sign_of_life.hpp"

#include <ckpt/error.hpp>

#include <chrono>
#include <exception>
#include <utility>

namespace ckpt::transport {
namespace {

/// While an answer takes long.
constexpr auto between_server_signs = std::chrono::seconds(1);

class Server {
 public:
  Server(Wire& wire, Replica& replica) : wire_(wire), replica_(replica) {}

  void run() {
    greet();
    while (auto message = wire_.receive_or_end()) {
      if (message->type == MessageType::alive) continue;
      if (message->type == MessageType::write) {
        write(message->payload);
      } else {
        answer(*message);
      }
    }
  }

 private:
  void greet() {
    const Message message = wire_.receive();
    if (message.type != MessageType::hello) throw Error(Errc::malformed, "the other side doesn't say hello");
    FieldReader in(message.payload);
    if (get_hello(in).version == 0) throw Error(Errc::unsupported, "the other side speaks no version of the protocol");
    FieldWriter out;
    put(out, Hello{.version = protocol_version, .features = 0});
    wire_.send(MessageType::hello, out.take());
  }

  /// A stream of writes isn't stopped by one that fails: the commit says it.
  void write(ByteView payload) {
    if (failure_) return;
    try {
      FieldReader in(payload);
      const auto shard = static_cast<std::uint32_t>(in.number(UINT32_MAX));
      replica_.write(shard, payload.subspan(8));
    } catch (const std::exception&) {
      failure_ = std::current_exception();
    }
  }

  void answer(const Message& message) {
    Bytes payload;
    MessageType type = MessageType::done;
    try {
      std::optional<SignOfLife> alive;
      // Reads are quick, and many.
      if (message.type != MessageType::read)
        alive.emplace(between_server_signs, [this] { wire_.send(MessageType::alive, {}); });
      payload = handle(message);
    } catch (const Error& error) {
      FieldWriter out;
      put(out, error);
      payload = out.take();
      type = MessageType::failure;
    }
    wire_.send(type, payload);
  }

  Bytes handle(const Message& message) {
    FieldReader in(message.payload);
    FieldWriter out;
    switch (message.type) {
      case MessageType::inventory: put(out, replica_.inventory()); break;
      case MessageType::manifest: {
        const auto checkpoint = get_checkpoint(in);
        const std::string text = replica_.manifest(checkpoint, in.truth());
        const ByteView bytes = as_bytes(text);
        return {bytes.begin(), bytes.end()};
      }
      case MessageType::read: {
        const std::uint64_t offset = in.number();
        Bytes bytes(in.number(max_piece));
        replica_.read(get_file(in), offset, bytes);
        return bytes;
      }
      case MessageType::read_block: {
        const auto checkpoint = get_checkpoint(in);
        const auto rank = static_cast<std::uint32_t>(in.number(UINT32_MAX));
        return replica_.read_block(checkpoint, rank, in.number());
      }
      case MessageType::other_form: {
        const FormRequest request = get_form_request(in);
        const SignOfLife alive(between_server_signs, [this] { wire_.send(MessageType::alive, {}); });
        const std::string text = replica_.other_form(request).value_or(std::string());
        const ByteView bytes = as_bytes(text);
        return {bytes.begin(), bytes.end()};
      }
      case MessageType::prepare: {
        failure_ = nullptr;
        const Offer offer = get_offer(in);
        const auto held = replica_.prepare(offer);
        out.number(held ? 0 : 1);
        if (held) out.number(held->size());
        for (const std::uint64_t bytes : held.value_or(std::vector<std::uint64_t>{})) out.number(bytes);
        break;
      }
      case MessageType::prepare_shard: {
        failure_ = nullptr;
        const ReplicaShard shard = get_shard(in);
        const auto held = replica_.prepare_shard(shard);
        out.number(held ? 0 : 1);
        if (held) out.number(*held);
        break;
      }
      case MessageType::commit: {
        if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
        out.number(replica_.commit() ? 1 : 0);
        break;
      }
      case MessageType::retire: replica_.retire(get_checkpoint(in)); break;
      case MessageType::remove: {
        const std::vector<std::uint64_t> steps = get_steps(in);
        put(out, replica_.remove(steps));
        break;
      }
      default: throw Error(Errc::malformed, "a request that isn't known");
    }
    return out.take();
  }

  Wire& wire_;
  Replica& replica_;
  std::exception_ptr failure_;
};

}  // namespace

void serve_replica(Wire& wire, Replica& replica) { Server(wire, replica).run(); }

}  // namespace ckpt::transport
