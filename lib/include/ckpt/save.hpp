// SPDX-License-Identifier: Apache-2.0
// Saves files as one shard of a checkpoint.
#pragma once

#include <ckpt/export.hpp>
#include <ckpt/monitor.hpp>
#include <ckpt/state.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ckpt {

/// How hard to look for a smaller form of each block.
enum class Encode {
  raw,   ///< not at all: bytes as they are
  fast,  ///< at the speed of the device, about
  best,  ///< slower and smaller
};

/// Which checkpoint to keep only the differences from.
enum class BaseChoice {
  automatic,  ///< the newest one that isn't suspect, lossy or poisoned, if there's any
  none,
  step,  ///< SaveOptions::base_step
};

struct SaveOptions {
  std::string store;
  std::uint64_t step = 0;

  /// Files and directories. A file is stored under its base name, a directory contributes its contents by
  /// their paths inside it. "-" reads `stdin_fd` under the name `stdin_name`.
  std::vector<std::string> sources;
  /// Names are then stored as given, relative to this directory (tar's -C).
  std::optional<std::string> directory;
  std::string stdin_name;
  int stdin_fd = 0;  ///< borrowed

  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  /// One life of the job. Default: the highest that the store records, 0 in a new one.
  std::optional<std::uint64_t> attempt;
  /// Moves what is newer than this step and of a lower attempt to .retired/. Needs `attempt`.
  std::optional<std::uint64_t> resumed_from;

  std::map<std::string, std::string> meta;  ///< the user's own keys; kept in the manifest
  bool create = true;                       ///< make the store if it doesn't exist
  bool read_back = false;                   ///< read what was written past the cache and check it before the commit
  bool replace = false;                     ///< other content at the same step takes its place
  bool owner = false;                       ///< keep user and group ids
  bool allow_malformed = false;  ///< a damaged file is saved as opaque bytes and the checkpoint marked suspect

  Encode encode = Encode::fast;
  BaseChoice base = BaseChoice::automatic;  ///< nothing is looked for with Encode::raw
  std::uint64_t base_step = 0;
  /// Decode what was encoded, and read what is referred to, and compare it before it's believed.
  bool check = true;

  unsigned jobs = 0;  ///< worker threads; 0: one a core
  /// Seconds since the epoch to record instead of the clock; leaves timings out (reproducible stores).
  std::optional<std::int64_t> fixed_time;
};

struct SaveReport {
  std::uint64_t step = 0;
  std::uint64_t attempt = 0;
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  /// written: other ranks are still missing; durable: committed; skipped: another rank said so, nothing was written
  SaveState state = SaveState::written;
  std::string reason;      ///< why it was skipped
  std::string id;          ///< the checkpoint's id (32 hex digits); empty until it's committed
  bool unchanged = false;  ///< the same content was there already; nothing was written
  bool suspect = false;
  std::uint64_t files = 0;
  std::uint64_t tensors = 0;
  std::uint64_t raw_bytes = 0;
  std::uint64_t stored_bytes = 0;
  double seconds = 0;         ///< in all
  double write_seconds = 0;   ///< from the first byte read to the container's fsync
  double commit_seconds = 0;  ///< publishing the shard, and committing if the set is complete with it
};

/// Saves one shard and commits the checkpoint if the set is complete with it. On success everything written
/// is on stable storage. On any Error nothing is committed and every older checkpoint is as it was.
///
/// Errors: invalid_argument; not_found; exists (other content at this step, or two sources with one name);
/// malformed (a damaged input); busy (an input is open for writing, or changed while it was read); no_space; io.
///
/// Safe to call from several threads and processes at once, also on the same store.
[[nodiscard]] CKPT_API SaveReport save(const SaveOptions& options, Monitor& monitor);

}  // namespace ckpt
