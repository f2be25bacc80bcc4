// SPDX-License-Identifier: Apache-2.0
// Where what is damaged here comes from instead: replicas that hold the same content, perhaps encoded in another way.
#pragma once

#include "format/block_decoder.hpp"
#include "format/container_reader.hpp"
#include "format/manifest.hpp"
#include "ops/stored_bases.hpp"
#include "os/fd.hpp"
#include "store/store.hpp"
#include "transport/replica.hpp"

#include <ckpt/error.hpp>
#include <ckpt/monitor.hpp>
#include <ckpt/sync.hpp>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace ckpt::ops {

/// The containers of a store, block by block mended on the way by its replicas. Thread-safe. Nothing is written to the
/// store; a container that can't be opened at all is fetched into a nameless file.
class ReplicaBlocks final : public format::BaseContainers {
 public:
  struct Places {
    std::string store;                  ///< the damaged one
    std::vector<std::string> replicas;  ///< as for ckpt::sync(), asked in this order
    std::string scratch;                ///< a directory for nameless files
    PeerOptions peer;
  };
  ReplicaBlocks(Places places, Monitor& monitor);

  [[nodiscard]] std::shared_ptr<const format::ContainerReader> open(const format::BaseCheckpoint& checkpoint,
                                                                    std::uint32_t rank) const override;
  [[nodiscard]] std::optional<Bytes> substitute(const format::ContainerReader& container,
                                                std::uint64_t block) const override;

  /// The local container, if it can be opened. Its damaged blocks are substituted.
  [[nodiscard]] std::shared_ptr<const format::ContainerReader> open_local(const store::Checkpoint& checkpoint,
                                                                          std::uint32_t rank) const;
  /// A whole container from a replica. Throws Damaged if none has it.
  struct Fetched {
    os::Fd file;
    std::string path;  ///< opens the nameless file again, as long as that is open
    format::ManifestShard shard;
    std::vector<format::BaseCheckpoint> bases;
  };
  [[nodiscard]] Fetched fetch(const format::BaseCheckpoint& checkpoint, std::uint32_t rank) const;
  /// The manifest of the committed checkpoint of a step that the first replica has which has one.
  [[nodiscard]] std::optional<format::Manifest> manifest_of(std::uint64_t step) const;

 private:
  struct Owner {
    format::BaseCheckpoint checkpoint;
    std::uint32_t rank = 0;
  };
  /// Null if it can't be reached, which is said once. One whose connection breaks is tried once more.
  [[nodiscard]] transport::Replica* replica(std::size_t i) const;
  [[nodiscard]] std::shared_ptr<const format::BaseContainers> self() const;
  void remember(const format::ContainerReader& container, const format::BaseCheckpoint& checkpoint,
                std::uint32_t rank) const;
  void say(const std::string& what) const;
  void note_failure(std::size_t i, const Error& error) const;

  Places places_;
  Monitor& monitor_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<transport::Replica>> replicas_;
  mutable std::vector<int> tries_left_;
  mutable std::map<Digest, Owner> owners_;  ///< by container
  mutable std::vector<os::Fd> fetched_;     ///< open as long as their readers may be
  mutable std::vector<std::string> said_;
};

}  // namespace ckpt::ops
