// SPDX-License-Identifier: Apache-2.0
// Encodes committed checkpoints anew, so that they take less space or are read faster.
//
// What a checkpoint holds, how it's cut into blocks, and its id stay; only containers and manifest are new ones. The
// new manifest's rename over the old one is the single moment of change, so a reader gets either version.
#pragma once

#include <ckpt/address.hpp>
#include <ckpt/export.hpp>
#include <ckpt/monitor.hpp>
#include <ckpt/save.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ckpt {

/// What numbers are stored as; they stay of the type that they are, with few bits in use.
enum class Quantization { int8, int4, fp8, bf16 };

/// How tensors lose values, for ever. Types, shapes and all else in their files stay, the checksums in zip files are
/// made right.
struct LossyRule {
  enum class Kind {
    drop,      ///< all values become zero
    quantize,  ///< numbers with fractions are rounded, in groups of 128 with a scale each; all others stay
    sparsify,  ///< of these numbers the smaller ones become zero, `fraction` of all at most
  };
  Kind kind = Kind::drop;
  std::string pattern;  ///< of tensors' names: an exact one, else as fnmatch(3) has it; not of wildcards alone
  Quantization quantization = Quantization::int8;
  double fraction = 0;  ///< above 0, below 1
};

struct CompressOptions {
  std::string store;
  std::vector<Selector> which;  ///< empty: all that are committed

  Encode encode = Encode::best;  ///< not raw
  std::optional<int> level;      ///< zstd's, 1 to 19, for blocks that are packed as bytes; else as `encode` has it
  /// automatic: for each the newest older one that isn't suspect, lossy or poisoned.
  BaseChoice base = BaseChoice::automatic;
  std::uint64_t base_step = 0;
  unsigned max_chain = 8;  ///< 1 to 8: the most blocks that are decoded to decode one, itself not counted
  /// The newest of them is stored in full, then each older one against the next newer one. Replaces `base`.
  bool newest_full = false;
  /// What a lower rank of the same checkpoint has too is stored there alone: replicas.
  bool across_ranks = false;
  /// Only what other checkpoints are needed for is encoded anew, without them. Replaces `base`.
  bool rebase = false;
  /// Only those that are older than this, counted from the newest; one whose time isn't recorded isn't old.
  std::optional<double> older_than_seconds;

  /// Not empty: the checkpoints lose this. Their ids are new ones, they're marked lossy, and what depends on them is
  /// encoded anew first. The newest good checkpoint and those pinned by a user are refused; of a whole store they're
  /// skipped. Tensors that match several rules are sparsified, then quantised, then dropped. No newest_full, rebase and
  /// across_ranks then.
  std::vector<LossyRule> lossy;

  bool dry_run = false;  ///< change nothing, and estimate what would come out from a sample
  unsigned jobs = 0;
};

enum class CompressAction {
  encoded,    ///< is stored anew; with dry_run: would be
  unchanged,  ///< wouldn't get smaller: is as it was
  skipped,    ///< is as it was, for the reason that is said
  failed,
};

/// What became of a tensor. Errors are absolute ones, of numbers that are finite; none for other types.
struct TensorLoss {
  std::uint32_t rank = 0;
  std::string file;
  std::string tensor;
  std::string dtype;
  std::string change;  ///< "dropped", "quantized to int8", "sparsified by 0.5"; joined by commas
  std::optional<double> largest_error;
  std::optional<double> mean_error;
};

struct CompressedCheckpoint {
  std::uint64_t step = 0;
  std::string id;  ///< empty if the manifest can't be read; where values were lost, the new one
  CompressAction action = CompressAction::skipped;
  std::string reason;      ///< of `skipped` and `failed`
  bool temporary = false;  ///< try again later
  std::optional<std::uint64_t> base;
  std::uint64_t raw_bytes = 0;
  std::uint64_t stored_before = 0;
  std::uint64_t stored_after = 0;
  std::vector<TensorLoss> losses;
};

struct CompressReport {
  std::vector<CompressedCheckpoint> checkpoints;  ///< in the order in which they were done
  std::vector<std::string> unmatched;             ///< patterns of CompressOptions::lossy that no tensor has
  double seconds = 0;
};

/// A checkpoint never gets larger, but with newest_full and rebase, which are there to make others smaller or reading
/// faster. One that a process uses, or that a set in the making depends on, is left alone; one that others depend on
/// doesn't get longer chains. What is encoded is decoded and compared. A kill at any moment leaves each checkpoint
/// readable, and the next save finishes the clean-up.
///
/// Errors: invalid_argument, not_found (no such store, no such step), busy (another one replaces, repairs, prunes or
/// compresses), io, interrupted. What is wrong with one checkpoint is said in the report. Thread-safe.
[[nodiscard]] CKPT_API CompressReport compress(const CompressOptions& options, Monitor& monitor);

struct CompressStreamOptions {
  int input_fd = 0;           ///< one container, to its end (borrowed)
  int output_fd = 1;          ///< one container (borrowed)
  std::string scratch = ".";  ///< a directory for files without a name, as large as the container
  Encode encode = Encode::best;
  std::optional<int> level;
  unsigned max_chain = 8;
  unsigned jobs = 0;
};

struct CompressStreamReport {
  std::uint64_t stored_before = 0;
  std::uint64_t stored_after = 0;
};

/// One container in, one with the same content out, that isn't larger. One that needs other containers is refused:
/// Errc::unsupported. Errors: damaged, unsupported, no_space, io, interrupted; nothing is written before all is known
/// to be good.
[[nodiscard]] CKPT_API CompressStreamReport compress_stream(const CompressStreamOptions& options, Monitor& monitor);

}  // namespace ckpt
