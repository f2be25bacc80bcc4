// SPDX-License-Identifier: Apache-2.0
// A queue of states in Redis: which keys there are, and every change of them, each one atomic.
//
//   NAME                    stream: one entry for each accepted shard, its field `shard` is the shard's id, 32 hex
//   digits
//                           chosen by the producer; consumer group `ckpt`, one consumer a server
//   NAME:shard:ID           what the state is, see announcement.hpp
//   NAME:shard:ID:N         piece N: XXH3-128 over id, number and bytes, then the bytes
//   NAME:shards             hash, id -> bytes: what counts for the producers' byte budget
//   NAME:uploads            sorted set, id -> when its lease ends (ms): states on their way into the queue
//   NAME:failures           hash, id -> how often it couldn't be saved
//   NAME:dead               stream: what failed twice, with `shard` and `reason`; its other keys stay
//   NAME:announced:ID       for a while: so that an announcement said again isn't taken for a second state
//   NAME:outcome:ID         for a while: what became of a shard, for a producer that waits for it
//
// Until a shard is announced its keys have a time to live that the producer renews, so a dead producer's go by
// themselves. Whoever settles the last entry removes the stream: an idle queue is no key at all. An entry is known by
// its id and its shard: ids may come again once a stream is removed. A server's claim is its entry in the group's
// pending list, younger than the servers' patience; a claim given back is one of nobody, and older.
//
// By hand: XRANGE NAME:dead - + shows dead letters, XADD NAME * shard ID tries one again (then XDEL it from NAME:dead),
// UNLINK of all NAME:shard:ID* and XDEL give one up.
#pragma once

#include "core/bytes.hpp"
#include "core/digest.hpp"
#include "doors/redis_connection.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt::doors {

struct QueueLimit {
  std::optional<std::uint64_t> bytes;
  std::optional<std::uint64_t> saves;
};

struct QueuedShard {
  std::string entry;  ///< the stream's id of it
  std::string shard;
  std::uint64_t deliveries = 0;  ///< to servers that weren't heard of again, this one included
  std::uint64_t announcement_size = 0;
};

/// What a server got when it asked for work.
struct Delivery {
  std::optional<QueuedShard> shard;
  std::string refused;  ///< not empty: an entry that no producer of ours wrote went to the dead letters
};

struct QueueDepth {
  std::uint64_t saves = 0;
  std::uint64_t bytes = 0;
  std::uint64_t dead_letters = 0;
  double oldest_seconds = 0;
};

enum class Failure { retried, buried, not_ours };

/// Speaks through a connection that it borrows; errors are the connection's. A call whose answer was lost may have
/// taken effect: each may be said again.
class RedisQueue {
 public:
  using Milliseconds = std::chrono::milliseconds;

  RedisQueue(RedisConnection& connection, std::string name) : connection_(connection), name_(std::move(name)) {}

  [[nodiscard]] std::string announcement_key(const std::string& shard) const;
  [[nodiscard]] std::string piece_key(const std::string& shard, std::uint64_t number) const;

  // What producers do.

  /// A place in the queue, for as long as the lease; false if there's none within the limit. One alone is let in.
  [[nodiscard]] bool reserve(const std::string& shard, std::uint64_t bytes, const QueueLimit& limit,
                             Milliseconds lease);
  /// A piece that is there stays as it is, so one that arrives late, on a connection that was given up, harms nothing.
  /// Needs one receive() of the connection.
  void send_piece(const std::string& shard, std::uint64_t number, const Digest& digest, ByteView bytes,
                  Milliseconds lease);
  void renew(const std::string& shard, std::uint64_t pieces, Milliseconds lease);
  /// Those of the first `pieces` that aren't there.
  [[nodiscard]] std::vector<std::uint64_t> missing(const std::string& shard, std::uint64_t pieces);
  /// Accepts the shard if no piece is missing; else false. `remembered`: how long it's known that it was accepted,
  /// until forget_announcement().
  [[nodiscard]] bool announce(const std::string& shard, std::uint64_t pieces, std::uint64_t bytes,
                              Milliseconds remembered, ByteView announcement);
  void forget_announcement(const std::string& shard);
  /// Gives everything of a shard up; false if it was accepted already.
  [[nodiscard]] bool withdraw(const std::string& shard, std::uint64_t pieces);
  [[nodiscard]] std::optional<std::string> take_outcome(const std::string& shard);

  // What servers do.

  /// An entry that no server has, or whose server hasn't been heard of for `patience`.
  [[nodiscard]] Delivery claim(const std::string& consumer, Milliseconds patience);
  /// Tells that the consumer lives and has the entry; false if it's not, or no longer, the consumer's.
  [[nodiscard]] bool keep(const QueuedShard& shard, const std::string& consumer);
  /// False if the entry was settled by another.
  [[nodiscard]] bool is_there(const QueuedShard& shard);
  /// Removes the entry and all its keys. False if another did so.
  bool settle(const QueuedShard& shard, std::uint64_t pieces, const std::string& outcome, Milliseconds outcome_kept);
  /// The first time the entry is given back, the second time it goes to the dead letters.
  [[nodiscard]] Failure fail(const QueuedShard& shard, const std::string& consumer, const std::string& reason,
                             const std::string& outcome, Milliseconds outcome_kept);
  /// To the dead letters at once.
  void bury(const QueuedShard& shard, const std::string& reason);
  /// `idle`: for how long it's then taken to have been left alone; servers with that much patience get it at once.
  void give_back(const QueuedShard& shard, const std::string& consumer, Milliseconds idle);
  /// A server that ends: its name in the group goes if nothing is pending for it.
  void leave(const std::string& consumer);
  [[nodiscard]] QueueDepth depth();

 private:
  [[nodiscard]] RedisValue run(std::string_view script, const std::vector<std::string>& arguments);

  RedisConnection& connection_;
  std::string name_;
};

/// What of a server's settings can cost accepted states; empty if nothing.
[[nodiscard]] std::vector<std::string> persistence_warnings(RedisConnection& connection);

}  // namespace ckpt::doors
