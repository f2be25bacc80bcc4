// SPDX-License-Identifier: Apache-2.0
// A sync in one direction: the messages of a sync without the answers, between a hello and an end that counts.
#include <ckpt/sync.hpp>

#include "ops/local_replica.hpp"
#include "ops/shared_source.hpp"
#include "ops/sync_ends.hpp"
#include "ops/sync_plan.hpp"
#include "ops/sync_sender.hpp"
#include "transport/replica_messages.hpp"
#include "transport/replica_server.hpp"

#include <ckpt/error.hpp>

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>
#include <cmath>

namespace ckpt {
namespace {

using transport::FieldReader;
using transport::FieldWriter;
using transport::Message;
using transport::MessageType;
using transport::Wire;

os::Fd own_copy(int fd) {
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (copy < 0) os::throw_errno(errno, "cannot duplicate a descriptor");
  return os::Fd(copy);
}

os::Fd nothing() { return os::open("/dev/null", O_RDONLY); }

/// The other side of a stream: takes all, and says nothing.
class StreamSink final : public transport::Replica {
 public:
  StreamSink(Wire& wire, transport::Inventory known) : wire_(wire), known_(std::move(known)) {
    FieldWriter out;
    put(out, transport::Hello{.version = transport::protocol_version, .features = 0});
    wire_.send(MessageType::hello, out.take());
  }

  [[nodiscard]] std::string name() const override { return wire_.peer(); }
  [[nodiscard]] transport::Inventory inventory() override { return known_; }
  [[nodiscard]] std::optional<std::vector<std::uint64_t>> prepare(const transport::Offer& offer) override {
    FieldWriter out;
    put(out, offer);
    wire_.send(MessageType::prepare, out.take());
    const format::Manifest manifest = format::decode_manifest(offer.manifest, "manifest");
    return std::vector<std::uint64_t>(manifest.shards.size(), 0);
  }
  void write(std::uint32_t shard, ByteView bytes) override {
    FieldWriter out;
    out.number(shard);
    Bytes payload = out.take();
    append(payload, bytes);
    wire_.send(MessageType::write, payload);
  }
  bool commit() override {
    wire_.send(MessageType::commit, {});
    return true;
  }

  [[nodiscard]] std::string manifest(const format::BaseCheckpoint&, bool) override { refuse(); }
  void read(const transport::FileName&, std::uint64_t, std::span<std::byte>) override { refuse(); }
  [[nodiscard]] Bytes read_block(const format::BaseCheckpoint&, std::uint32_t, std::uint64_t) override { refuse(); }
  [[nodiscard]] std::optional<std::uint64_t> prepare_shard(const transport::ReplicaShard&) override { refuse(); }
  void retire(const format::BaseCheckpoint&) override { refuse(); }
  [[nodiscard]] transport::Removal remove(const std::vector<std::uint64_t>&) override { refuse(); }

 private:
  [[noreturn]] static void refuse() { throw Error(Errc::unsupported, "a stream goes in one direction"); }

  Wire& wire_;
  transport::Inventory known_;
};

transport::Inventory inventory_of(const std::vector<SyncStreamOptions::Known>& have) {
  transport::Inventory inventory;
  for (const SyncStreamOptions::Known& known : have) {
    const auto id = digest_from_hex(known.id);
    if (!id) throw Error(Errc::invalid_argument, "'" + known.id + "' is no checkpoint's id");
    inventory.checkpoints.push_back({.identity = {.id = *id, .step = known.step}, .bases = {}});
  }
  return inventory;
}

/// Takes the messages of one stream into a replica.
class StreamReader {
 public:
  StreamReader(Wire& wire, transport::Replica& replica, bool replace, SyncObserver& observer)
      : wire_(wire), replica_(replica), replace_(replace), observer_(observer) {}

  std::uint64_t run() {
    const Message hello = wire_.receive();
    if (hello.type != MessageType::hello) throw Error(Errc::malformed, "this is no stream of ckpt-sync");
    FieldReader in(hello.payload);
    // No one answers, so there's nothing to agree on.
    if (transport::get_hello(in).version != transport::protocol_version)
      throw Error(Errc::unsupported, "the stream is of another version of ckpt-sync, which this one can't read");
    while (true) {
      const auto message = wire_.receive_or_end();
      if (!message) throw Error(Errc::malformed, "the stream is cut off");
      if (message->type == MessageType::done) return end(message->payload);
      take(*message);
    }
  }

 private:
  std::uint64_t end(ByteView payload) const {
    FieldReader in(payload);
    if (in.number() != count_) throw Error(Errc::malformed, "checkpoints of the stream are missing");
    return count_;
  }

  void take(const Message& message) {
    FieldReader in(message.payload);
    if (message.type == MessageType::prepare) {
      offer_ = transport::get_offer(in);
      offer_.replace = replace_;  // what is replaced here is said here
      const auto held = replica_.prepare(offer_);
      wanted_ = held.has_value();
      skip_ = held.value_or(std::vector<std::uint64_t>{});
      return;
    }
    if (message.type == MessageType::write) {
      if (!wanted_) return;
      const auto shard = static_cast<std::uint32_t>(in.number(UINT32_MAX));
      if (shard >= skip_.size()) throw Error(Errc::malformed, "bytes came for a shard that the checkpoint hasn't got");
      ByteView bytes = ByteView(message.payload).subspan(8);
      // What an earlier try brought is there.
      const std::uint64_t skipped = std::min<std::uint64_t>(skip_[shard], bytes.size());
      skip_[shard] -= skipped;
      bytes = bytes.subspan(skipped);
      if (!bytes.empty()) replica_.write(shard, bytes);
      return;
    }
    if (message.type != MessageType::commit) throw Error(Errc::malformed, "the stream holds something unknown");
    ++count_;
    if (!wanted_) return;
    (void)replica_.commit();
    const format::Manifest manifest = format::decode_manifest(offer_.manifest, "manifest");
    observer_.item({.action = SyncItem::Action::sent,
                    .destination = replica_.name(),
                    .step = manifest.step,
                    .id = to_hex(manifest.id),
                    .stored_bytes = manifest.stored_bytes(),
                    .reason = {}});
  }

  Wire& wire_;
  transport::Replica& replica_;
  bool replace_;
  SyncObserver& observer_;
  transport::Offer offer_;
  bool wanted_ = false;
  std::vector<std::uint64_t> skip_;
  std::uint64_t count_ = 0;
};

}  // namespace

void serve_sync(const std::string& path, int input_fd, int output_fd, const PeerOptions& peer, Monitor& monitor) {
  Wire wire(own_copy(input_fd), own_copy(output_fd), "the other side", ops::patience_of(peer), monitor);
  ops::LocalReplica replica(path, peer.jobs, monitor);
  transport::serve_replica(wire, replica);
}

std::uint64_t write_sync_stream(const SyncStreamOptions& options, SyncObserver& observer) {
  ops::SharedSource source(ops::open_replica(options.store, options.peer, observer));
  source.keep_nothing();
  Wire wire(nothing(), own_copy(options.fd), "the stream", ops::patience_of(options.peer), observer);
  StreamSink sink(wire, inventory_of(options.have));
  const transport::Inventory here = source.inventory();
  if (!here.is_store) throw Error(Errc::not_found, "'" + options.store + "' is not a store");
  ops::SyncPlan plan =
      ops::plan_sync({.chosen = ops::choose_checkpoints(here, options.which, options.store), .replace = true}, here,
                     sink.inventory(), "the other side");
  if (!plan.conflicts.empty()) throw Error(Errc::not_found, plan.conflicts.front());
  ops::SyncSender sender(source, sink, options.peer, false, observer);
  for (const transport::ReplicaCheckpoint& entry : plan.send) {
    const std::uint64_t moved = sender.send(entry);
    observer.item({.action = SyncItem::Action::sent,
                   .destination = sink.name(),
                   .step = entry.identity.step,
                   .id = to_hex(entry.identity.id),
                   .stored_bytes = entry.stored_bytes,
                   .moved_bytes = moved,
                   .reason = {}});
  }
  FieldWriter out;
  out.number(plan.send.size());
  wire.send(MessageType::done, out.take());
  return plan.send.size();
}

std::uint64_t read_sync_stream(const std::string& store, bool replace, int fd, const PeerOptions& peer,
                               SyncObserver& observer) {
  Wire wire(own_copy(fd), nothing(), "the stream", ops::patience_of(peer), observer);
  const auto replica = ops::open_replica(store, peer, observer);
  return StreamReader(wire, *replica, replace, observer).run();
}

}  // namespace ckpt
