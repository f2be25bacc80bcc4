// SPDX-License-Identifier: Apache-2.0
// Fuzzes both ends of a sync's pipe. The first byte chooses the end, and whether the rest are the very bytes, or a list
// of messages (type, size in two bytes, payload) that get right checksums, so that the fuzzer gets behind them.
#include "os/fd.hpp"
#include "transport/pipe_replica.hpp"
#include "transport/replica_messages.hpp"
#include "transport/replica_server.hpp"
#include "transport/wire.hpp"

#include <ckpt/address.hpp>
#include <ckpt/error.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>

namespace {

using namespace ckpt;
using namespace ckpt::transport;

void require(bool condition) {
  if (!condition) std::abort();
}

os::Fd nowhere() { return os::open("/dev/null", O_WRONLY); }

/// Holds nothing, and checks that what reaches it is within its bounds.
class Nothing final : public Replica {
 public:
  [[nodiscard]] std::string name() const override { return "nothing"; }
  [[nodiscard]] Inventory inventory() override { return {}; }
  [[nodiscard]] std::string manifest(const format::BaseCheckpoint& checkpoint, bool) override {
    require(checkpoint.step <= max_step);
    return "text";
  }
  [[nodiscard]] std::optional<std::string> other_form(const FormRequest& request) override {
    if (request.without.empty()) return std::nullopt;
    return "text";
  }
  void read(const FileName& file, std::uint64_t, std::span<std::byte> into) override {
    require(into.size() <= max_piece && store::parse_shard_name(file.file));
    std::fill(into.begin(), into.end(), std::byte{1});
  }
  [[nodiscard]] Bytes read_block(const format::BaseCheckpoint&, std::uint32_t, std::uint64_t) override { return {}; }
  [[nodiscard]] std::optional<std::vector<std::uint64_t>> prepare(const Offer& offer) override {
    if (offer.manifest.empty()) return std::nullopt;
    return std::vector<std::uint64_t>{1, 2};
  }
  [[nodiscard]] std::optional<std::uint64_t> prepare_shard(const ReplicaShard& shard) override {
    require(shard.rank < shard.set.world_size && store::parse_shard_name(shard.file));
    return 0;
  }
  void write(std::uint32_t, ByteView bytes) override { require(bytes.size() <= max_payload); }
  bool commit() override { return true; }
  void retire(const format::BaseCheckpoint&) override { throw Error(Errc::not_found, "it isn't here"); }
  [[nodiscard]] Removal remove(const std::vector<std::uint64_t>& steps) override {
    return {.removed = steps, .refused = {}};
  }
};

os::Fd memory(ByteView bytes) {
  os::Fd fd(::memfd_create("fuzz", MFD_CLOEXEC));
  os::write_all(fd, bytes, "memory");
  require(::lseek(fd.get(), 0, SEEK_SET) == 0);
  return fd;
}

/// The messages of a list, as they'd be sent.
Bytes framed(ByteView list) {
  const Monitor monitor;
  os::Fd made(::memfd_create("messages", MFD_CLOEXEC));
  {
    Wire wire(os::open("/dev/null", O_RDONLY), os::Fd(::dup(made.get())), "fuzz", std::chrono::seconds(1), monitor);
    while (list.size() >= 3) {
      const auto type = static_cast<MessageType>(list[0]);
      const std::size_t size = std::min<std::size_t>(load_le<std::uint16_t>(list.data() + 1), list.size() - 3);
      wire.send(type, list.subspan(3, size));
      list = list.subspan(3 + size);
    }
  }
  Bytes bytes(static_cast<std::size_t>(::lseek(made.get(), 0, SEEK_CUR)));
  require(::pread(made.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  return bytes;
}

void serve(ByteView bytes, const Monitor& monitor) {
  Wire wire(memory(bytes), nowhere(), "fuzz", std::chrono::seconds(1), monitor);
  Nothing nothing;
  serve_replica(wire, nothing);
}

/// Asks one thing after the other; what is wrong with one answer is no reason not to look at the next.
void ask(ByteView bytes, const Monitor& monitor) {
  PipeReplica replica(Wire(memory(bytes), nowhere(), "fuzz", std::chrono::seconds(1), monitor));
  const format::BaseCheckpoint checkpoint{.id = {}, .step = 1};
  const FileName file{.checkpoint = checkpoint, .set = {}, .file = "shard-00000-of-00001.ckpt"};
  std::array<std::byte, 16> piece{};
  Bytes whole(max_piece);
  const auto questions = {
      +[](PipeReplica& r, const FileName&, std::span<std::byte>, std::span<std::byte>) {
        for (const auto& shard : r.inventory().shards) require(store::parse_shard_name(shard.file).has_value());
      },
      +[](PipeReplica& r, const FileName& f, std::span<std::byte>, std::span<std::byte>) {
        (void)r.manifest(*f.checkpoint, false);
      },
      +[](PipeReplica& r, const FileName&, std::span<std::byte>, std::span<std::byte>) {
        (void)r.prepare({.manifest = "text"});
        r.write(0, {});
        (void)r.commit();
      },
      +[](PipeReplica& r, const FileName& f, std::span<std::byte> p, std::span<std::byte>) { r.read(f, 0, p); },
      +[](PipeReplica& r, const FileName& f, std::span<std::byte>, std::span<std::byte> w) { r.read(f, 0, w); },
      +[](PipeReplica& r, const FileName&, std::span<std::byte>, std::span<std::byte>) {
        (void)r.remove({1, 2});
      },
  };
  for (const auto question : questions) {
    try {
      question(replica, file, piece, whole);
    } catch (const Error& error) {
      if (error.code() == Errc::busy) throw;  // the end of the bytes
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const Monitor monitor;
  const ByteView bytes = std::as_bytes(std::span(data, size)).subspan(1);
  const Bytes made = (data[0] & 2U) != 0 ? framed(bytes) : Bytes(bytes.begin(), bytes.end());
  try {
    if ((data[0] & 1U) != 0)
      ask(made, monitor);
    else
      serve(made, monitor);
  } catch (const Error&) {
    return 0;  // the right answer to bytes that aren't a peer's
  }
  return 0;
}
