// SPDX-License-Identifier: Apache-2.0
// Containers that come from another store, on their way into this one. What has arrived stays on disk, so that the next
// try goes on there; nothing is visible before all of it is verified and synced.
//
//   .pending/sync-0000001000-IDDIGITS/       a checkpoint; manifest.part is locked by who writes it
//   .pending/sync-0000001010.4.2-00003-DIGEST/   a shard of a set
#pragma once

#include "core/bytes.hpp"
#include "format/block_decoder.hpp"
#include "format/container_reader.hpp"
#include "format/manifest.hpp"
#include "ops/stored_bases.hpp"
#include "os/fd.hpp"
#include "store/pins.hpp"
#include "store/store.hpp"
#include "transport/replica.hpp"

#include <ckpt/monitor.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ckpt::ops {

/// One container in the making. Bytes are appended.
class IncomingFile {
 public:
  /// What an earlier try left at `path` counts, up to `size`.
  IncomingFile(std::string path, std::uint64_t size);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::uint64_t held() const { return held_; }
  /// Throws malformed for more than there should be.
  void append(ByteView bytes);
  /// All of it is there, is the container of that digest, and is whole: else Damaged, with what's wrong cut away so
  /// that the next try brings it anew. Then it's synced, and no one may write to it.
  void verify_and_sync(const Digest& digest, std::shared_ptr<const format::BaseContainers> bases, unsigned jobs,
                       Monitor& monitor);

 private:
  std::string path_;
  os::Fd fd_;
  std::uint64_t size_;
  std::uint64_t held_ = 0;
  std::uint64_t written_back_ = 0;  ///< up to here the system was asked to write to the disk
};

/// A checkpoint in the making; one process at a time has it.
class IncomingCheckpoint {
 public:
  /// Throws exists if its step is taken by another id and the offer doesn't replace it; busy if another sync writes it;
  /// no_space; malformed for a manifest that isn't one; not_found if a base isn't there.
  IncomingCheckpoint(const store::Store& store, const transport::Offer& offer);

  /// True if the store holds it already: then there's nothing to do.
  [[nodiscard]] static bool is_there(const store::Store& store, const format::Manifest& manifest, bool retired);

  [[nodiscard]] std::vector<std::uint64_t> held() const;
  void append(std::uint32_t shard, ByteView bytes);
  void commit(unsigned jobs, Monitor& monitor);
  /// Another brought it: what came here isn't needed any more.
  void abandon();

 private:
  void pin_bases();
  void require_room() const;
  void require_agreement(const format::ContainerReader& container, const format::ManifestShard& shard) const;
  void require_short_chains(const format::ContainerReader& container, const StoredBases& bases) const;
  void require_lower_rank(std::uint32_t rank, const format::BlockRecord& block) const;
  void take_back_names();
  void publish();

  store::Store store_;
  transport::Offer offer_;
  format::Manifest manifest_;
  std::string directory_;
  os::Fd lock_;
  std::vector<store::Pin> pins_;
  std::vector<IncomingFile> files_;
};

/// A shard of a set in the making.
class IncomingShard {
 public:
  IncomingShard(const store::Store& store, transport::ReplicaShard shard);

  /// True if the store holds it, in a set or committed.
  [[nodiscard]] static bool is_there(const store::Store& store, const transport::ReplicaShard& shard);

  [[nodiscard]] std::uint64_t held() const { return files_.front().held(); }
  void append(ByteView bytes) { files_.front().append(bytes); }
  /// True if a checkpoint is complete with it.
  bool commit(unsigned jobs, Monitor& monitor);

 private:
  store::Store store_;
  transport::ReplicaShard shard_;
  std::string directory_;
  os::Fd lock_;
  std::vector<IncomingFile> files_;
};

/// Removes what tries that are given up left: a week old by the file system's clock, or of checkpoints that are there.
void clean_incoming(const store::Store& store);

}  // namespace ckpt::ops
