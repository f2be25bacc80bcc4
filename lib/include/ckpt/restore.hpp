// SPDX-License-Identifier: Apache-2.0
// Gives back the files of a checkpoint bit for bit, or exports single tensors.
#pragma once

#include <ckpt/address.hpp>
#include <ckpt/export.hpp>
#include <ckpt/monitor.hpp>
#include <ckpt/sync.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ckpt {

/// What to take from a checkpoint, the same for files and tensors.
struct Selection {
  std::vector<std::string> files;     ///< patterns: an exact path, else fnmatch over the whole path; empty: all
  std::optional<std::uint32_t> rank;  ///< this shard only
};

struct RestoreOptions {
  Address from;  ///< no selector: the latest
  /// Exactly one of these three:
  std::string directory;         ///< files go below it; it's made if it isn't there
  std::string output;            ///< the one selected file, under this name
  std::optional<int> output_fd;  ///< the one selected file, written to this descriptor (borrowed)

  Selection select;
  bool by_rank = false;      ///< each shard into directory/rank-RRRRR
  bool force = false;        ///< files of other content that are in the way are replaced
  bool allow_lossy = false;  ///< also one that has lost values; else that's Errc::unsupported
  /// Replicas that may hold what is damaged, as STORE, [USER@]HOST:STORE or rclone:REMOTE:PATH. Nothing is written to
  /// the store.
  std::vector<std::string> replicas;
  PeerOptions peer;
  bool fallback = false;  ///< if `from` is damaged, take the newest good checkpoint before it
  unsigned jobs = 0;
};

struct RestoreReport {
  std::uint64_t step = 0;
  std::string id;
  std::uint64_t files = 0;      ///< written
  std::uint64_t unchanged = 0;  ///< were there already, identical
  std::uint64_t bytes = 0;      ///< written
  double seconds = 0;
  /// With fallback: why each newer checkpoint was passed over.
  struct Skipped {
    std::uint64_t step = 0;
    std::string reason;
  };
  std::vector<Skipped> skipped;
};

/// Restores files. Every block is checked before its bytes can be seen under a final name; on an Error no final
/// name was touched. Never writes outside the destination, whatever the store says.
///
/// Errors: not_found; damaged; exists (a file of other content is in the way, or shards hold one path with
/// different content); no_space; io.
[[nodiscard]] CKPT_API RestoreReport restore(const RestoreOptions& options, Monitor& monitor);

enum class ExportFormat { raw, npy, safetensors, tar, pt };

struct ExportOptions {
  Address from;
  std::vector<std::string> tensors;  ///< patterns: an exact name, else fnmatch over the whole name
  ExportFormat as = ExportFormat::safetensors;
  std::string strip_prefix;  ///< taken from the front of exported names
  Selection select;
  bool full = false;             ///< the parts that shards hold are joined: each tensor comes whole
  std::string output;            ///< a path; written beside it and renamed
  std::optional<int> output_fd;  ///< instead of `output` (borrowed)
  bool force = false;            ///< replace an existing output
  bool allow_lossy = false;      ///< as in RestoreOptions
  unsigned jobs = 0;
};

struct ExportReport {
  std::uint64_t step = 0;
  std::string id;
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;
};

/// Exports tensors: raw (the contiguous bytes of exactly one tensor), npy (exactly one), safetensors, tar
/// (a tar of .npy files), or pt (a flat dict of tensors as torch.save writes it). Strided views come out contiguous;
/// conjugate and negative bits are resolved.
///
/// With `full` the parts of a tensor are looked for in all shards and files that are selected. Files whose paths differ
/// only in numbers (ranks, steps) hold parts of the same tensors. Replicas must be the same; parts that overlap
/// otherwise, that leave a gap or that disagree on shape or type are Errc::damaged, and nothing is written.
///
/// Errors as restore(); invalid_argument if more than one tensor matches raw or npy; unsupported for a dtype
/// the format has no name for and for tensors without bytes (meta).
[[nodiscard]] CKPT_API ExportReport export_tensors(const ExportOptions& options, Monitor& monitor);

}  // namespace ckpt
