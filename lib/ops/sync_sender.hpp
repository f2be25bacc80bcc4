// SPDX-License-Identifier: Apache-2.0
// Brings one checkpoint after the other from a source to a destination, piece by piece.
#pragma once

#include "ops/rate_limit.hpp"
#include "ops/shared_source.hpp"
#include "transport/replica.hpp"

#include <ckpt/monitor.hpp>
#include <ckpt/sync.hpp>

#include <cstdint>

namespace ckpt::ops {

class SyncSender {
 public:
  SyncSender(SharedSource& source, transport::Replica& destination, const PeerOptions& peer, bool replace,
             Monitor& monitor);

  /// How much there will be, for progress.
  void expect(std::uint64_t bytes) { total_ = bytes; }

  /// Returns how many bytes of containers moved. Throws as the replicas do.
  std::uint64_t send(const transport::ReplicaCheckpoint& checkpoint);
  std::uint64_t send(const transport::ReplicaShard& shard);
  /// In the form that the source has made, which `manifest` describes.
  std::uint64_t send_other_form(const transport::ReplicaCheckpoint& checkpoint, const std::string& manifest);

 private:
  std::uint64_t send_once(const transport::ReplicaCheckpoint& checkpoint);
  std::uint64_t send_form(const transport::ReplicaCheckpoint& checkpoint, const std::string& text, bool other);
  std::uint64_t send_file(const transport::FileName& file, std::uint32_t shard, std::uint64_t held, std::uint64_t size);
  [[nodiscard]] std::uint64_t piece_size() const;

  SharedSource& source_;
  transport::Replica& destination_;
  const PeerOptions& peer_;
  bool replace_;
  Monitor& monitor_;
  RateLimit limit_;
  std::uint64_t total_ = 0;
  std::uint64_t done_ = 0;
};

}  // namespace ckpt::ops
