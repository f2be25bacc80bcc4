// SPDX-License-Identifier: Apache-2.0
// States to send through a queue, both ends of one with quick settings, and what came out compared with what went in.
#pragma once

#include "redis_server.hpp"
#include "scratch.hpp"
#include "source/source_tree.hpp"
#include "source_support.hpp"
#include "doors/announcement.hpp"
#include "doors/redis_inlet.hpp"
#include "doors/redis_outlet.hpp"
#include "doors/redis_queue.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace redis_test {

constexpr std::uint64_t small_piece = 65536;
constexpr std::chrono::milliseconds quick_death{400};

inline void write_file(const std::string& path, const std::string& content) {
  std::ofstream stream(path, std::ios::binary);
  stream << content;
  stream.close();
  REQUIRE(stream);
}

/// Bytes that don't repeat within a piece.
inline std::string noise(std::size_t size, std::uint64_t seed) {
  std::string bytes(size, '\0');
  std::uint64_t state = seed * 2 + 1;
  for (char& byte : bytes) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<char>(state >> 56U);
  }
  return bytes;
}

class Spy final : public ckpt::Monitor {
 public:
  std::vector<std::string> warnings;
  std::function<void(std::uint64_t done)> at_progress;
  bool stop = false;

  void progress(const ckpt::Progress& progress) override {
    if (at_progress) at_progress(progress.done);
  }
  void warning(std::string_view message) override { warnings.emplace_back(message); }
  [[nodiscard]] bool stop_requested() const override { return stop; }
};

/// `act` at the first progress beyond `after` bytes.
inline void once_beyond(Spy& spy, std::uint64_t after, std::function<void()> act) {
  spy.at_progress = [after, act = std::move(act), acted = false](std::uint64_t done) mutable {
    if (done <= after || acted) return;
    acted = true;
    act();
  };
}

struct State {
  ckpt::StageOptions options;
  std::unique_ptr<ckpt::doors::Parcel> parcel;
};

inline State state_of(const std::string& directory, std::uint64_t step = 7) {
  State state;
  state.options.save.step = step;
  state.options.save.sources = {directory};
  state.options.timeout_seconds = 10;
  return state;
}

/// Only now: the options are borrowed.
inline const ckpt::doors::Parcel& pack(State& state) {
  auto entries = ckpt::source::arrange(ckpt::source::collect_tree({.operands = state.options.save.sources}));
  state.parcel = std::make_unique<ckpt::doors::Parcel>(
      ckpt::doors::Parcel{.options = state.options,
                              .ticket = ckpt::doors::make_ticket(state.options.save, entries),
                              .entries = std::move(entries)});
  return *state.parcel;
}

inline ckpt::doors::RedisOutlet outlet_of(const RedisServer& server, std::uint64_t piece_size = small_piece,
                                              std::chrono::milliseconds lease = std::chrono::seconds(60)) {
  return {server.address(), {}, {.piece_size = piece_size, .lease = lease}};
}

inline std::unique_ptr<ckpt::doors::RedisInlet> inlet_of(const RedisServer& server,
                                                             const unit_test::Scratch& scratch) {
  return std::make_unique<ckpt::doors::RedisInlet>(
      server.address(), "", scratch.path(),
      ckpt::doors::RedisInletSettings{.dead_after = quick_death,
                                          .renew_every = std::chrono::milliseconds(50),
                                          .patience = std::chrono::seconds(10)});
}

inline std::unique_ptr<ckpt::doors::Claim> claim_within(
    ckpt::doors::Inlet& inlet, ckpt::Monitor& monitor, std::chrono::milliseconds limit = std::chrono::seconds(10)) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (std::chrono::steady_clock::now() < deadline) {
    if (auto claim = inlet.claim(monitor)) return claim;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return nullptr;
}

/// Everything that a save sees of a tree, as text: two trees are the same if this is.
inline std::vector<std::string> seen_in(const std::string& directory) {
  std::vector<std::string> lines;
  for (const auto& entry : ckpt::source::arrange(ckpt::source::collect_tree({.operands = {directory}}))) {
    std::string line = entry.file.path + "|" + std::string(ckpt::format::name_of(entry.file.type)) + "|" +
                       std::to_string(entry.file.mode) + "|" + std::to_string(entry.file.mtime_ns) + "|" +
                       std::to_string(entry.file.size) + "|" + entry.file.target;
    if (entry.file.type == ckpt::format::EntryType::file)
      line += "|" + ckpt::to_hex(ckpt::xxh3_128(std::string_view(source_test::read_file(entry.origin))));
    lines.push_back(line);
  }
  return lines;
}

inline void make_tree(const std::string& root, std::size_t large) {
  namespace fs = std::filesystem;
  fs::create_directories(root + "/dir/sub");
  fs::create_directories(root + "/empty dir");
  write_file(root + "/large.bin", noise(large, 1));
  write_file(root + "/dir/empty", "");
  write_file(root + "/dir/small", "a few bytes");
  write_file(root + "/dir/sub/odd\xff\xfe\nname", noise(70000, 2));
  fs::create_symlink("dir/small", root + "/link");
  fs::create_hard_link(root + "/dir/small", root + "/other name");
  REQUIRE(::chmod((root + "/dir/small").c_str(), 0640) == 0);
  REQUIRE(::chmod((root + "/dir/sub").c_str(), 0750) == 0);
  const struct timespec times[2] = {{.tv_sec = 1, .tv_nsec = 2}, {.tv_sec = 1234567890, .tv_nsec = 123456789}};
  for (const char* name : {"/large.bin", "/dir/small", "/link", "/dir/sub"})
    REQUIRE(::utimensat(AT_FDCWD, (root + name).c_str(), times, AT_SYMLINK_NOFOLLOW) == 0);
}

/// The code of the Error that `act` throws; nothing if it throws none.
inline std::optional<ckpt::Errc> error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const ckpt::Error& error) {
    return error.code();
  }
  return std::nullopt;
}

/// A queue with one accepted state of some pieces.
struct Queued {
  unit_test::Scratch input;
  unit_test::Scratch scratch;
  RedisServer server;
  Spy spy;
  ckpt::doors::RedisConnection connection{server.address(), {}};
  ckpt::doors::RedisQueue queue{connection, "q"};

  explicit Queued(std::size_t states = 1) {
    write_file(input / "state.bin", noise(5 * small_piece + 17, 3));
    for (std::size_t i = 0; i < states; ++i) send(i + 1);
  }

  ckpt::doors::Receipt send(std::uint64_t step = 7) {
    State state = state_of(input.path(), step);
    return outlet_of(server).hand_over(pack(state), spy);
  }

  /// The id of the oldest shard.
  std::string shard() const { return server.call({"XRANGE", "q", "-", "+", "COUNT", "1"}).at(0).at(1).at(1).text(); }

  void save_all(std::size_t count) {
    const auto inlet = inlet_of(server, scratch);
    for (std::size_t i = 0; i < count; ++i) {
      const auto claim = claim_within(*inlet, spy);
      REQUIRE(claim);
      CHECK(seen_in(claim->fetch(spy)) == seen_in(input.path()));
      claim->done({.state = ckpt::SaveState::durable});
    }
    CHECK(inlet->claim(spy) == nullptr);
    CHECK(server.keys() == 0);
  }
};

}  // namespace redis_test
