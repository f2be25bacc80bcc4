// SPDX-License-Identifier: Apache-2.0
#include "doors/piece_source.hpp"

#include "doors/patience.hpp"
#include "format/damaged.hpp"

#include <algorithm>
#include <utility>

namespace ckpt::doors {
namespace {

constexpr std::size_t digest_size = sizeof(Digest::bytes);

[[noreturn]] void throw_damaged(std::uint64_t number, const QueuedShard& shard, const std::string& why) {
  throw format::Damaged(DamageKind::altered, 0, 0,
                        "piece " + std::to_string(number) + " of shard " + shard.shard + " " + why);
}

}  // namespace

PieceSource::PieceSource(const Announcement& announcement, const QueuedShard& shard, std::string queue, Connect connect,
                         std::chrono::milliseconds patience, std::function<void()> wanted)
    : announcement_(announcement),
      shard_(shard),
      queue_(std::move(queue)),
      connect_(std::move(connect)),
      patience_(patience),
      wanted_(std::move(wanted)) {}

std::uint64_t PieceSource::size_of(std::uint64_t number) const {
  return std::min(announcement_.piece_size, announcement_.bytes - number * announcement_.piece_size);
}

Piece PieceSource::get(std::uint64_t number) {
  Piece piece{.buffer = buffers_.take(), .bytes = {}, .digest = {}};
  const std::size_t expected = digest_size + size_of(number);
  piece.buffer->reserve(digest_size + announcement_.piece_size);
  auto connection = connections_.take();
  if (*connection == nullptr) *connection = std::make_unique<RedisConnection>(connect_());
  const std::size_t size = receive(**connection, number, piece.buffer->span().first(expected));
  if (size != expected) throw_damaged(number, shard_, "has another size than was announced");
  const ByteView whole = piece.buffer->span().first(expected);
  piece.bytes = whole.subspan(digest_size);
  piece.digest = piece_digest(shard_.shard, number, piece.bytes);
  if (!std::equal(piece.digest.bytes.begin(), piece.digest.bytes.end(), whole.begin()))
    throw_damaged(number, shard_, "doesn't match its checksum");
  return piece;
}

std::size_t PieceSource::receive(RedisConnection& connection, std::uint64_t number, std::span<std::byte> into) {
  RedisQueue queue(connection, queue_);
  Patience patience(patience_, {});
  while (true) {
    wanted_();
    try {
      if (const auto size = connection.get(queue.piece_key(shard_.shard, number), into)) return *size;
      if (queue.is_there(shard_)) throw_damaged(number, shard_, "is missing");
      throw Error(Errc::busy, "another server has settled shard " + shard_.shard);
    } catch (const RedisTrouble&) {
      connection.close();
      if (patience.is_over()) throw;
    }
    patience.sleep();
  }
}

}  // namespace ckpt::doors
