// SPDX-License-Identifier: Apache-2.0
// Checks the shards of one checkpoint, piece by piece, so that it can stop between two and go on there another time.
#pragma once

#include "format/container_reader.hpp"
#include "ops/check_container.hpp"
#include "ops/replica_blocks.hpp"
#include "store/store.hpp"

#include <ckpt/error.hpp>
#include <ckpt/monitor.hpp>
#include <ckpt/verify.hpp>

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt::ops {

/// What the options ask for: looking for NaN needs every block.
[[nodiscard]] VerifyLevel effective_level(const VerifyOptions& options);
[[nodiscard]] std::string_view to_string(VerifyLevel level);

/// True if it's this process that can't look, and not the store that is damaged: no permission, no descriptor, no
/// memory.
[[nodiscard]] bool is_no_access(const Error& error);

/// Used from one thread.
class CheckpointCheck {
 public:
  /// `replicas` may be null; else a repair asks them.
  CheckpointCheck(const store::Store& store, store::Checkpoint checkpoint, const VerifyOptions& options,
                  const ReplicaBlocks* replicas, Monitor& monitor);

  struct Position {
    std::uint32_t rank = 0;
    std::uint64_t byte = 0;
  };
  void start_at(std::uint32_t rank, std::uint64_t byte) { position_ = {.rank = rank, .byte = byte}; }

  /// Goes on until the end, or until `is_over` says so between two pieces; then false, and position() says where.
  [[nodiscard]] bool run(const std::function<bool()>& is_over);

  [[nodiscard]] const Position& position() const { return position_; }
  [[nodiscard]] const std::vector<Damage>& damages() const { return damages_; }
  [[nodiscard]] const std::vector<NonFinite>& non_finite() const { return non_finite_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  void check_bases();
  [[nodiscard]] bool check_shard(const format::ManifestShard& shard, const std::function<bool()>& is_over);
  void check_without_index(const os::AdaptiveReader& file, const format::ManifestShard& shard);
  [[nodiscard]] bool matches_manifest(const format::ContainerReader& container, const format::ManifestShard& shard);
  /// Removed, retired or replaced since it was found.
  [[nodiscard]] bool is_gone() const;
  void add(const format::ManifestShard& shard, const format::ContainerReader* container, const Problem& problem);
  void repair(const format::ManifestShard& shard, std::size_t first_damage);
  void count_non_finite(const format::ContainerReader& container, std::uint64_t block, ByteView raw);

  const store::Store& store_;
  store::Checkpoint checkpoint_;
  const VerifyOptions& options_;
  const ReplicaBlocks* replicas_;
  Monitor& monitor_;
  std::string address_;
  std::uint64_t total_ = 0;
  Position position_;
  std::vector<Damage> damages_;
  std::mutex mutex_;  // for what on_block and on_progress touch
  std::vector<NonFinite> non_finite_;
  std::uint64_t bytes_ = 0;
};

}  // namespace ckpt::ops
