// SPDX-License-Identifier: Apache-2.0
// A store on whatever rclone reaches: the same names as in a directory, so that a copy of all of it is a valid store.
// Objects can't be renamed there, so a checkpoint is there once its manifest is, which is written last.
#pragma once

#include "transport/rclone_containers.hpp"
#include "transport/rclone_listing.hpp"
#include "transport/rclone_remote.hpp"
#include "transport/rclone_upload.hpp"
#include "transport/replica.hpp"

#include <ckpt/error.hpp>
#include <ckpt/monitor.hpp>

#include <chrono>
#include <list>
#include <memory>
#include <optional>
#include <string>

namespace ckpt::transport {

/// One writer at a time: an object store knows no locks. Sets that aren't complete are not kept there.
class RcloneReplica final : public Replica {
 public:
  struct Options {
    std::chrono::milliseconds patience;
    std::string scratch = "/tmp";  ///< a directory for the manifests
  };
  /// Throws invalid_argument for what is not rclone:REMOTE:PATH.
  RcloneReplica(std::string address, const Options& options, Monitor& monitor);

  [[nodiscard]] std::string name() const override { return remote_.address(); }
  [[nodiscard]] Inventory inventory() override;
  [[nodiscard]] std::string manifest(const format::BaseCheckpoint& checkpoint, bool retired) override;
  void read(const FileName& file, std::uint64_t offset, std::span<std::byte> into) override;
  [[nodiscard]] Bytes read_block(const format::BaseCheckpoint& checkpoint, std::uint32_t rank,
                                 std::uint64_t block) override;
  [[nodiscard]] std::optional<std::vector<std::uint64_t>> prepare(const Offer& offer) override;
  [[nodiscard]] std::optional<std::uint64_t> prepare_shard(const ReplicaShard& shard) override;
  void write(std::uint32_t shard, ByteView bytes) override;
  bool commit() override;
  void retire(const format::BaseCheckpoint& checkpoint) override;
  [[nodiscard]] Removal remove(const std::vector<std::uint64_t>& steps) override;

 private:
  /// An object that is read from one end to the other.
  struct Reading {
    FileName file;
    std::uint64_t size = 0;
    std::uint64_t next = 0;
    std::unique_ptr<RcloneProcess> process;
  };

  [[nodiscard]] RcloneListing& listing();
  [[nodiscard]] const RcloneCheckpoint& find(const format::BaseCheckpoint& checkpoint, bool or_retired);
  [[nodiscard]] std::unique_ptr<RcloneContainers> containers();
  void forget_if_stale(const Error& error);
  [[nodiscard]] Reading take_reading(const FileName& file, std::uint64_t offset);
  void ensure_description();
  void require_free(const std::string& directory, const format::Manifest& manifest, bool replace);
  [[nodiscard]] format::Manifest named_apart(const std::string& directory, format::Manifest manifest);
  void require_bases(const format::Manifest& manifest);
  void require_agreement(const format::Manifest& manifest);
  void require_base(const format::Manifest& manifest, const format::ManifestShard& shard,
                    const format::BaseCheckpoint& base, const format::BlockRecord& block,
                    const RcloneContainers& stored) const;
  void remove_leftovers(const std::string& directory, const format::Manifest& manifest);
  void drop(const std::string& directory);

  RcloneRemote remote_;
  Options options_;
  Monitor& monitor_;
  std::unique_ptr<RcloneListing> listing_;
  std::unique_ptr<RcloneContainers> containers_;  ///< for read_block()
  std::list<Reading> readings_;                   ///< the last used one is at the end
  // What is being written.
  std::optional<RcloneUpload> upload_;
  std::string directory_;
  std::string text_;
};

}  // namespace ckpt::transport
