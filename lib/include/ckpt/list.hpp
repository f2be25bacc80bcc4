// SPDX-License-Identifier: Apache-2.0
// Reads what a store holds: checkpoints, sets in the making, files, tensors.
#pragma once

#include <ckpt/address.hpp>
#include <ckpt/export.hpp>
#include <ckpt/monitor.hpp>
#include <ckpt/state.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ckpt {

struct CheckpointInfo {
  std::uint64_t step = 0;
  std::string id;
  std::uint64_t attempt = 0;
  std::uint32_t world_size = 1;
  std::uint64_t shards = 0;
  std::uint64_t files = 0;
  std::uint64_t tensors = 0;
  std::uint64_t raw_bytes = 0;
  std::uint64_t stored_bytes = 0;
  std::optional<std::int64_t> created;  ///< seconds since the epoch
  std::map<std::string, std::string> meta;
  /// "suspect", "lossy", "poisoned": why it's never `latest`; with the reason.
  std::map<std::string, std::string> marks;
  /// "durable"; "verified" (a record says good); "damaged" (a record says so, or the manifest is); "unreadable" (the
  /// caller may not read the manifest).
  std::string state;
  std::string state_detail;
  bool retired = false;
};

/// A save that isn't durable: one that is staged in a spool, a set that isn't committed, or one that was skipped.
struct PendingInfo {
  std::uint64_t step = 0;
  std::uint64_t attempt = 0;
  std::uint32_t world_size = 1;
  std::vector<std::uint32_t> ranks_present;  ///< of a set: whose shards are there
  SaveState state = SaveState::written;
  std::string reason;                 ///< what it's waiting for, or why it failed
  double age_seconds = 0;             ///< by this host's clock
  std::optional<std::uint32_t> rank;  ///< of a staged save
  std::string path;                   ///< where its bytes are
  std::uint64_t raw_bytes = 0;        ///< of a staged save
};

struct PendingListing {
  std::vector<PendingInfo> saves;   ///< in order of step
  std::vector<std::string> unseen;  ///< spools on other hosts' disks, which can't be looked into from here
};

struct FileInfo {
  std::uint32_t rank = 0;
  std::string path;
  std::string type;    ///< "file", "directory", "symlink", "hardlink"
  std::string kind;    ///< "torch-zip", "torch-legacy", "safetensors", "distcp", "dcp-metadata", "npy", "npz", "opaque"
  std::string target;  ///< of a symlink or hard link
  std::uint32_t mode = 0;
  std::uint64_t size = 0;
  std::int64_t mtime_ns = 0;
  std::uint64_t tensors = 0;
  std::string note;  ///< what the parser had to say
};

struct TensorStats {
  std::optional<double> min, max, mean, norm;  ///< over finite values; unset where there is none
  std::uint64_t nan = 0;
  std::uint64_t inf = 0;
};

struct TensorListing {
  std::uint32_t rank = 0;
  std::string file;
  std::string name;
  std::string dtype;
  std::string layout;  ///< "strided", "sparse_coo", ...
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> global_shape;  ///< empty: not sharded
  std::vector<std::int64_t> global_offsets;
  std::uint64_t bytes = 0;  ///< of its contiguous form
  bool meta = false;        ///< has no bytes
  std::optional<TensorStats> stats;
};

struct FileSum {
  std::string path;
  std::string xxh128;  ///< 32 hex digits, as xxh128sum prints them
};

/// Committed checkpoints in order of step. Errors: not_found (no store), io.
[[nodiscard]] CKPT_API std::vector<CheckpointInfo> list_checkpoints(const std::string& store);
[[nodiscard]] CKPT_API std::vector<CheckpointInfo> list_retired(const std::string& store);
/// `spools` are looked into besides those that the store tells of.
[[nodiscard]] CKPT_API PendingListing list_pending(const std::string& store,
                                                   const std::vector<std::string>& spools = {});

/// The one checkpoint that an address names (no selector: the latest). Errors: not_found, damaged, io.
[[nodiscard]] CKPT_API CheckpointInfo find_checkpoint(const Address& address);

/// Files of a checkpoint, by rank and path.
[[nodiscard]] CKPT_API std::vector<FileInfo> list_files(const Address& address);

struct TensorQuery {
  Address from;
  std::vector<std::string> tensors;  ///< patterns; empty: all
  bool stats = false;                ///< reads and decodes every block
  unsigned jobs = 0;
};
[[nodiscard]] CKPT_API std::vector<TensorListing> list_tensors(const TensorQuery& query, Monitor& monitor);

/// XXH3-128 of each whole file, checked against the blocks' hashes on the way.
[[nodiscard]] CKPT_API std::vector<FileSum> file_sums(const Address& address, unsigned jobs, Monitor& monitor);

/// True if a checkpoint is there that isn't suspect, lossy, poisoned or recorded as damaged. False for none yet,
/// and for a store that isn't there. Errors: io, and damaged if a store is there but can't be read.
[[nodiscard]] CKPT_API bool has_good_checkpoint(const Address& address);

}  // namespace ckpt
