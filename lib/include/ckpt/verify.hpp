// SPDX-License-Identifier: Apache-2.0
// Checks what is stored, names what is damaged, mends a single flipped bit.
#pragma once

#include <ckpt/address.hpp>
#include <ckpt/export.hpp>
#include <ckpt/monitor.hpp>
#include <ckpt/sync.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt {

enum class VerifyLevel {
  quick,   ///< sizes, and the checksums of manifests, footers and indexes
  stored,  ///< every stored byte
  deep,    ///< every block is decoded and its raw hash checked
};

struct VerifyOptions {
  Address what;  ///< no selector: every committed checkpoint
  VerifyLevel level = VerifyLevel::stored;
  /// Checks only this share of the stored bytes, chosen at random.
  std::optional<double> sample_percent;
  /// Stops after so many seconds; the next run with a budget goes on there.
  std::optional<double> budget_seconds;
  std::uint64_t bytes_per_second = 0;  ///< of stored bytes; 0: as fast as it goes
  bool finite = false;                 ///< also name tensors that hold NaN or Inf (implies deep)
  bool repair = false;                 ///< mend single flipped bits
  /// With `repair`: replicas that may hold what is damaged, as STORE, [USER@]HOST:STORE or
  /// rclone:REMOTE:PATH.
  std::vector<std::string> from;
  PeerOptions peer;
  std::string state_file;  ///< where results go instead of STORE/.verify/
  unsigned jobs = 0;
};

enum class DamageKind {
  truncated,   ///< the file ends early
  altered,     ///< bytes differ from their checksum
  missing,     ///< a file that the manifest names isn't there
  unreadable,  ///< the operating system gives an I/O error
};
[[nodiscard]] CKPT_API std::string_view to_string(DamageKind kind);

struct Damage {
  std::string checkpoint;  ///< its address; the store's path for damage outside checkpoints
  DamageKind kind = DamageKind::altered;
  std::string shard;        ///< the damaged store file, relative to the checkpoint's directory
  std::uint64_t begin = 0;  ///< byte range in it
  std::uint64_t end = 0;
  std::string file;    ///< the saved file that is hit; empty if none, or not known
  std::string tensor;  ///< the tensor that is hit; empty if none, or not known
  std::string detail;  ///< what is wrong, one line
  bool repaired = false;
  std::string repair;  ///< what was mended: element and bit; or why it couldn't be
};

struct NonFinite {
  std::string checkpoint;
  std::uint32_t rank = 0;
  std::string file;
  std::string tensor;
  std::uint64_t nan = 0;
  std::uint64_t inf = 0;
};

/// A set that isn't complete. Not damage.
struct NotCommitted {
  std::uint64_t step = 0;
  std::uint64_t attempt = 0;
  std::uint32_t world_size = 1;
  std::vector<std::uint32_t> missing_ranks;
};

struct VerifyReport {
  std::vector<Damage> damages;
  std::vector<NonFinite> non_finite;
  std::vector<NotCommitted> not_committed;
  std::vector<std::string> failures;  ///< checkpoints of the store that couldn't be looked at, and why
  std::uint64_t checkpoints = 0;      ///< looked at
  std::uint64_t bytes = 0;            ///< checked
  bool complete = true;               ///< false: the budget ended it early
  double seconds = 0;

  /// No damage that is still there, and no non-finite value.
  [[nodiscard]] CKPT_API bool intact() const;
};

/// Verifies one address. Deletes nothing, moves nothing; with `repair` a mended container gets a new name and the
/// manifest is swapped.
///
/// Errors only if it couldn't look at all: not_found (no such store or checkpoint), io on the store itself.
[[nodiscard]] CKPT_API VerifyReport verify(const VerifyOptions& options, Monitor& monitor);

}  // namespace ckpt
