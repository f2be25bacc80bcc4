// SPDX-License-Identifier: Apache-2.0
// Containers on an object store, of which only those parts are fetched that a block needs: into sparse files in memory,
// which are emptied again once the block is decoded.
#pragma once

#include "format/block_decoder.hpp"
#include "format/container_reader.hpp"
#include "format/manifest.hpp"
#include "transport/rclone_remote.hpp"

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <utility>

namespace ckpt::transport {

/// Used from one thread.
class RcloneContainers final : public format::BaseContainers {
 public:
  struct Place {
    std::string object;
    format::ManifestShard shard;
  };
  /// Where a checkpoint's shard is. Throws not_found.
  using Find = std::function<Place(const format::BaseCheckpoint&, std::uint32_t rank)>;

  /// `remote` is borrowed.
  RcloneContainers(const RcloneRemote& remote, Find find) : remote_(remote), find_(std::move(find)) {}

  /// Its index and catalog can be asked; its blocks are for read_block(). Throws Damaged if it's another than its
  /// manifest says, and as the remote does.
  [[nodiscard]] std::shared_ptr<const format::ContainerReader> open(const format::BaseCheckpoint& checkpoint,
                                                                    std::uint32_t rank) const override;
  /// Decoded and checked. Throws not_found, Damaged, and as the remote does.
  [[nodiscard]] Bytes read_block(const format::BaseCheckpoint& checkpoint, std::uint32_t rank, std::uint64_t block);

 private:
  struct Sparse {
    format::BaseCheckpoint checkpoint;
    std::uint32_t rank = 0;
    Place place;
    os::Fd file;
    std::shared_ptr<const format::ContainerReader> reader;
    std::set<std::uint64_t> held;  ///< blocks
  };
  [[nodiscard]] Sparse& open_sparse(const format::BaseCheckpoint& checkpoint, std::uint32_t rank) const;
  void fetch(const Sparse& container, std::uint64_t offset, std::uint64_t size) const;
  void fetch_ends(const Sparse& container) const;
  void fetch_chain(Sparse& container, std::uint64_t block, unsigned depth);
  void forget_blocks();

  const RcloneRemote& remote_;
  Find find_;
  mutable std::list<Sparse> open_;
  std::uint64_t fetched_ = 0;  ///< bytes for the block in question
};

}  // namespace ckpt::transport
