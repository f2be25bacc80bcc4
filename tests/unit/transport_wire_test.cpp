// SPDX-License-Identifier: Apache-2.0
// Messages and their fields: what is written is read back, what is short, long, damaged or late is refused.
#include "transport/replica_messages.hpp"
#include "transport/wire.hpp"

#include <ckpt/error.hpp>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>
#include <array>
#include <functional>
#include <limits>
#include <random>
#include <thread>

namespace ckpt::transport {
namespace {

constexpr auto patience = std::chrono::milliseconds(200);

/// A wire whose other end this test holds.
struct Ends {
  os::Fd to_wire, from_wire;
  Monitor monitor;
  std::unique_ptr<Wire> wire;

  Ends() {
    std::array<int, 2> in{};
    std::array<int, 2> out{};
    REQUIRE(::pipe2(in.data(), O_CLOEXEC) == 0);
    REQUIRE(::pipe2(out.data(), O_CLOEXEC) == 0);
    to_wire = os::Fd(in[1]);
    from_wire = os::Fd(out[0]);
    wire = std::make_unique<Wire>(os::Fd(in[0]), os::Fd(out[1]), "peer", patience, monitor);
  }
  void feed(ByteView bytes) { os::write_all(to_wire, bytes, "pipe"); }
  Bytes sent(MessageType type, ByteView payload) {
    wire->send(type, payload);
    Bytes bytes(16 + payload.size());
    REQUIRE(::read(from_wire.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    return bytes;
  }
};

Errc code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return Errc::exists;  // none
}

Bytes some_bytes(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

TEST_CASE("messages come back as they were sent") {
  for (const std::size_t size : {0U, 1U, 15U, 16U, 17U, 4096U, 60000U}) {
    Ends ends;
    const Bytes payload = some_bytes(size, static_cast<unsigned>(size));
    ends.feed(ends.sent(MessageType::read, payload));
    const Message message = ends.wire->receive();
    CHECK(message.type == MessageType::read);
    CHECK(message.payload == payload);
  }
}

TEST_CASE("a flipped bit anywhere in a message is found") {
  const Bytes payload = some_bytes(40, 1);
  const Bytes good = Ends().sent(MessageType::write, payload);
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    Ends ends;
    Bytes bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    ends.feed(bad);
    ends.to_wire = {};
    const Errc code = code_of([&] { (void)ends.wire->receive(); });
    // A size that grew makes it wait for what doesn't come.
    CHECK((code == Errc::malformed || code == Errc::busy));
  }
}

TEST_CASE("a message that is cut anywhere is temporary") {
  const Bytes good = Ends().sent(MessageType::write, some_bytes(20, 1));
  for (std::size_t size = 0; size < good.size(); ++size) {
    Ends ends;
    ends.feed(ByteView(good).first(size));
    ends.to_wire = {};
    if (size == 0) {
      CHECK(!ends.wire->receive_or_end());
    } else {
      CHECK(code_of([&] { (void)ends.wire->receive_or_end(); }) == Errc::busy);
    }
  }
}

TEST_CASE("a peer that sends nothing, or takes nothing, is given up in time") {
  Ends ends;
  const auto begin = std::chrono::steady_clock::now();
  CHECK(code_of([&] { (void)ends.wire->receive(); }) == Errc::busy);
  const Bytes much(1U << 20U);
  CHECK(code_of([&] {
          for (int i = 0; i < 100; ++i) ends.wire->send(MessageType::write, much);
        }) == Errc::busy);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
}

TEST_CASE("what the other side wouldn't take isn't sent") {
  Ends ends;
  CHECK(code_of([&] { ends.wire->send(MessageType::done, Bytes(max_payload + 1)); }) == Errc::unsupported);
}

TEST_CASE("a large message that trickles in is put together") {
  Ends ends;
  const Bytes good = Ends().sent(MessageType::read, some_bytes(3000, 3));
  std::thread feeder([&] {
    for (std::size_t at = 0; at < good.size(); at += 100)
      ends.feed(ByteView(good).subspan(at).first(std::min<std::size_t>(100, good.size() - at)));
  });
  CHECK(ends.wire->receive().payload.size() == 3000);
  feeder.join();
}

TEST_CASE("a descriptor that others share blocks again as before") {
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  const os::Fd reading(ends[0]);
  const os::Fd writing(ends[1]);
  const Monitor monitor;
  {
    const Wire wire(os::Fd(::dup(ends[0])), os::Fd(::dup(ends[1])), "peer", patience, monitor);
    CHECK((::fcntl(ends[0], F_GETFL) & O_NONBLOCK) != 0);
  }
  CHECK((::fcntl(ends[0], F_GETFL) & O_NONBLOCK) == 0);
}

ReplicaCheckpoint sample_entry(unsigned n) {
  const format::BaseCheckpoint identity{.id = xxh3_128(std::to_string(n)), .step = n};
  return {.identity = identity,
          .retired = n % 3 == 0,
          .attempt = n,
          .raw_bytes = std::numeric_limits<std::uint64_t>::max(),
          .stored_bytes = n * 7,
          .bases = std::vector<format::BaseCheckpoint>(n % 4, identity)};
}

TEST_CASE("an inventory comes back as it was, and none that's cut does") {
  Inventory inventory{.is_store = true, .unreadable = {3, 4}, .checkpoints = {}, .shards = {}};
  for (unsigned n = 0; n < 5; ++n) inventory.checkpoints.push_back(sample_entry(n));
  inventory.shards.push_back({.set = {.step = 8, .world_size = 3, .attempt = 1},
                              .rank = 2,
                              .file = "shard-00002-of-00003.ckpt",
                              .size = 77,
                              .digest = xxh3_128("x")});
  FieldWriter out;
  put(out, inventory);
  const Bytes payload = out.take();
  FieldReader in(payload);
  const Inventory back = get_inventory(in);
  in.end();
  FieldWriter again;
  put(again, back);
  CHECK(again.take() == payload);
  CHECK(back.is_store);
  CHECK(back.unreadable == inventory.unreadable);
  CHECK(back.checkpoints.size() == 5);
  CHECK(back.checkpoints[3].identity == inventory.checkpoints[3].identity);
  CHECK(back.shards.front().file == inventory.shards.front().file);
  for (std::size_t size = 0; size < payload.size(); ++size) {
    FieldReader cut(ByteView(payload).first(size));
    CHECK(code_of([&] { (void)get_inventory(cut); }) == Errc::malformed);
  }
}

TEST_CASE("removals, offers and errors come back as they were") {
  FieldWriter out;
  put(out, Removal{.removed = {1, 2}, .refused = {{.step = 3, .why = "pinned"}}});
  put(out, Offer{.manifest = "text", .retired = true, .replace = false});
  put(out, Error(Errc::no_space, "full").with_hint("free some"));
  put(out, Error(Errc::interrupted, "stopped"));
  const Bytes payload = out.take();
  FieldReader in(payload);
  const Removal removal = get_removal(in);
  CHECK(removal.removed == std::vector<std::uint64_t>{1, 2});
  CHECK(removal.refused.front().step == 3);
  CHECK(removal.refused.front().why == "pinned");
  const Offer offer = get_offer(in);
  CHECK((offer.manifest == "text" && offer.retired && !offer.replace));
  const Error error = get_error(in, "host");
  CHECK(error.code() == Errc::no_space);
  CHECK(std::string(error.what()) == "host: full");
  CHECK(error.hint() == "free some");
  CHECK(get_error(in, "host").code() == Errc::busy);  // its interruption isn't ours
  in.end();
}

TEST_CASE("names that lead out of a directory aren't read") {
  for (const char* name : {"", "..", "../shard-00000-of-00001.ckpt", "/etc/passwd", "manifest.json", "a/b"}) {
    FieldWriter out;
    out.number(0).number(1).number(1).number(0).text(name);
    const Bytes payload = out.take();
    FieldReader in(payload);
    CHECK(code_of([&] { (void)get_file(in); }) == Errc::malformed);
  }
}

TEST_CASE("counts and sizes beyond a message cost nothing") {
  for (const std::uint64_t count :
       {std::uint64_t{1} << 32U, std::numeric_limits<std::uint64_t>::max(), std::uint64_t{2}}) {
    FieldWriter out;
    out.number(1).number(count);
    const Bytes payload = out.take();
    FieldReader in(payload);
    CHECK(code_of([&] { (void)get_inventory(in); }) == Errc::malformed);
  }
  FieldWriter out;
  out.text(std::string(300, 'x'));
  const Bytes payload = out.take();
  FieldReader in(payload);
  CHECK(code_of([&] { (void)in.text(255); }) == Errc::malformed);
}

}  // namespace
}  // namespace ckpt::transport
