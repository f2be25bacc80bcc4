// SPDX-License-Identifier: Apache-2.0
// The pieces of an announced shard, out of Redis, checked. Several threads may ask at once, each on a connection of its
// own.
#pragma once

#include "core/pipeline.hpp"
#include "doors/announcement.hpp"
#include "doors/redis_queue.hpp"
#include "os/aligned_buffer.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace ckpt::doors {

struct Piece {
  Pool<os::AlignedBuffer>::Lease buffer;
  ByteView bytes;
  Digest digest;
};

class PieceSource {
 public:
  using Connect = std::function<RedisConnection()>;

  /// Borrows all of it. `wanted` throws when the pieces are no longer wanted.
  PieceSource(const Announcement& announcement, const QueuedShard& shard, std::string queue, Connect connect,
              std::chrono::milliseconds patience, std::function<void()> wanted);

  /// Throws Damaged: it isn't there, or isn't what was sent; busy: Redis can't be reached, or another server has
  /// settled the shard; what `wanted` throws.
  [[nodiscard]] Piece get(std::uint64_t number);

 private:
  [[nodiscard]] std::size_t receive(RedisConnection& connection, std::uint64_t number, std::span<std::byte> into);
  [[nodiscard]] std::uint64_t size_of(std::uint64_t number) const;

  const Announcement& announcement_;
  const QueuedShard& shard_;
  std::string queue_;
  Connect connect_;
  std::chrono::milliseconds patience_;
  std::function<void()> wanted_;
  Pool<std::unique_ptr<RedisConnection>> connections_;
  Pool<os::AlignedBuffer> buffers_;
};

}  // namespace ckpt::doors
