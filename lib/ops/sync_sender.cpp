// SPDX-License-Identifier: Apache-2.0
#include "ops/sync_sender.hpp"

#include "core/stop.hpp"
#include "format/manifest.hpp"
#include "transport/wire.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <bit>

namespace ckpt::ops {
namespace {

/// How often a checkpoint that is encoded anew meanwhile, or arrives damaged, is begun again.
constexpr int tries = 3;

}  // namespace

SyncSender::SyncSender(SharedSource& source, transport::Replica& destination, const PeerOptions& peer, bool replace,
                       Monitor& monitor)
    : source_(source),
      destination_(destination),
      peer_(peer),
      replace_(replace),
      monitor_(monitor),
      limit_(peer.bytes_per_second) {}

std::uint64_t SyncSender::send(const transport::ReplicaCheckpoint& checkpoint) {
  std::uint64_t moved = 0;
  for (int i = 1;; ++i) {
    try {
      return moved + send_once(checkpoint);
    } catch (const Error& error) {
      const bool again = error.code() == Errc::not_found || error.code() == Errc::damaged;
      if (!again || i == tries) throw;
      monitor_.note(std::string(error.what()) + "; once more");
    }
  }
}

std::uint64_t SyncSender::send_once(const transport::ReplicaCheckpoint& checkpoint) {
  return send_form(checkpoint, source_.manifest(checkpoint.identity, checkpoint.retired), false);
}

std::uint64_t SyncSender::send_other_form(const transport::ReplicaCheckpoint& checkpoint, const std::string& manifest) {
  return send_form(checkpoint, manifest, true);
}

std::uint64_t SyncSender::send_form(const transport::ReplicaCheckpoint& checkpoint, const std::string& text,
                                    bool other) {
  const format::Manifest manifest = format::decode_manifest(text, "a manifest of '" + source_.name() + "'");
  if (manifest.identity() != checkpoint.identity)
    throw Error(Errc::malformed, "'" + source_.name() + "' gives another manifest than it was asked for");
  const auto held = destination_.prepare({.manifest = text, .retired = checkpoint.retired, .replace = replace_});
  if (!held) return 0;
  if (held->size() != manifest.shards.size())
    throw Error(Errc::malformed, "'" + destination_.name() + "' counts other shards than there are");
  std::uint64_t moved = 0;
  for (std::uint32_t shard = 0; shard < manifest.shards.size(); ++shard) {
    const transport::FileName file{.checkpoint = checkpoint.identity,
                                   .retired = checkpoint.retired,
                                   .form = other ? std::optional(manifest.shards[shard].digest) : std::nullopt,
                                   .set = {},
                                   .file = manifest.shards[shard].file};
    moved += send_file(file, shard, (*held)[shard], manifest.shards[shard].size);
  }
  (void)destination_.commit();
  return moved;
}

std::uint64_t SyncSender::send(const transport::ReplicaShard& shard) {
  const auto held = destination_.prepare_shard(shard);
  if (!held) return 0;
  const transport::FileName file{.checkpoint = std::nullopt, .retired = false, .set = shard.set, .file = shard.file};
  const std::uint64_t moved = send_file(file, 0, *held, shard.size);
  (void)destination_.commit();
  return moved;
}

std::uint64_t SyncSender::send_file(const transport::FileName& file, std::uint32_t shard, std::uint64_t held,
                                    std::uint64_t size) {
  if (held > size) throw Error(Errc::malformed, "'" + destination_.name() + "' holds more of a shard than there is");
  done_ += held;
  for (std::uint64_t at = held; at < size;) {
    require_no_stop(monitor_);
    // To the next multiple, so that destinations that go on at different places soon read the same pieces.
    const std::uint64_t piece = piece_size();
    const std::uint64_t count = std::min(piece - at % piece, size - at);
    const auto bytes = source_.read(file, at, count);
    destination_.write(shard, *bytes);
    at += count;
    done_ += count;
    monitor_.progress({.stage = "sync", .done = done_, .total = std::max(total_, done_)});
    limit_.hold(count, monitor_);
  }
  return size - held;
}

/// So that no piece takes longer than a second, and the other side doesn't find this one silent.
std::uint64_t SyncSender::piece_size() const {
  constexpr std::uint64_t least = 4096;
  if (peer_.bytes_per_second == 0) return transport::max_piece;
  return std::clamp(std::bit_floor(peer_.bytes_per_second), least, transport::max_piece);
}

}  // namespace ckpt::ops
