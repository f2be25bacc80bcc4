// SPDX-License-Identifier: Apache-2.0
// One side of a sync, wherever it is: what a store holds, its bytes, and the way into it. A local directory is one, the
// other end of a pipe another.
#pragma once

#include "core/bytes.hpp"
#include "format/base.hpp"
#include "format/manifest.hpp"
#include "store/layout.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ckpt::transport {

/// A checkpoint, without its containers being looked at.
struct ReplicaCheckpoint {
  format::BaseCheckpoint identity;
  bool retired = false;
  bool marked = false;  ///< suspect, lossy or poisoned: never the latest
  std::uint64_t attempt = 0;
  std::uint64_t raw_bytes = 0;
  std::uint64_t stored_bytes = 0;
  std::vector<format::BaseCheckpoint> bases;  ///< that it depends on
};

[[nodiscard]] ReplicaCheckpoint describe(const format::Manifest& manifest, bool retired);

/// A shard in a set that isn't complete.
struct ReplicaShard {
  store::SetKey set;
  std::uint32_t rank = 0;
  std::string file;  ///< in the set's directory
  std::uint64_t size = 0;
  Digest digest;
  Digest root;  ///< what it holds, however it's encoded
};

struct Inventory {
  bool is_store = false;                       ///< false: nothing is there yet
  std::vector<std::uint64_t> unreadable;       ///< steps whose manifest is damaged: what they are can't be told
  std::vector<ReplicaCheckpoint> checkpoints;  ///< committed ones by step, then retired ones
  std::vector<ReplicaShard> shards;
};

/// Which file of a replica: a shard of a checkpoint, or of a set.
struct FileName {
  std::optional<format::BaseCheckpoint> checkpoint;
  bool retired = false;
  std::optional<Digest> form = {};  ///< of another form that was made: the container's digest
  store::SetKey set;                ///< without a checkpoint
  std::string file;
  friend bool operator==(const FileName&, const FileName&) = default;
};

/// A form of a checkpoint that suits another store better.
struct FormRequest {
  format::BaseCheckpoint checkpoint;
  std::vector<format::BaseCheckpoint> without;    ///< no block depends on these
  std::optional<format::BaseCheckpoint> against;  ///< blocks may be stored against this one's, which both have
  std::uint64_t most = 0;                         ///< bytes that it may have in all
  friend bool operator==(const FormRequest&, const FormRequest&) = default;
};

/// A checkpoint that is to be written.
struct Offer {
  std::string manifest;  ///< the sealed text
  bool retired = false;
  bool replace = false;  ///< what is committed at its step with another id gives way
};

/// What a removal came to.
struct Removal {
  struct Refused {
    std::uint64_t step = 0;
    std::string why;
  };
  std::vector<std::uint64_t> removed;  ///< steps
  std::vector<Refused> refused;
};

/// Used from one thread. All calls throw busy where the other side can't be reached or is busy, damaged for what fails
/// its check, malformed for what no sound replica would say, and io, no_space as ever.
class Replica {
 public:
  virtual ~Replica() = default;
  /// For messages.
  [[nodiscard]] virtual std::string name() const = 0;

  /// Nothing is there: an empty one.
  [[nodiscard]] virtual Inventory inventory() = 0;

  /// The manifest's text. Errc::not_found if it isn't there any more.
  [[nodiscard]] virtual std::string manifest(const format::BaseCheckpoint& checkpoint, bool retired) = 0;
  /// Fills `into`, at most max_piece bytes. not_found if the file is gone: the manifest may name another by now.
  virtual void read(const FileName& file, std::uint64_t offset, std::span<std::byte> into) = 0;
  /// Makes another form of a checkpoint, and gives its manifest's text; its files can be read for a while, by their
  /// digests. Nothing if it would be larger than is asked for, or can't be made here.
  [[nodiscard]] virtual std::optional<std::string> other_form(const FormRequest& request) {
    (void)request;
    return std::nullopt;
  }
  /// The decoded bytes of one block of a rank's shard. The caller checks them.
  [[nodiscard]] virtual Bytes read_block(const format::BaseCheckpoint& checkpoint, std::uint32_t rank,
                                         std::uint64_t block) = 0;

  /// Begins to write a checkpoint. How many bytes of each shard are there already, from an earlier try; nothing if the
  /// checkpoint itself is. Throws exists if its step is taken by another id.
  [[nodiscard]] virtual std::optional<std::vector<std::uint64_t>> prepare(const Offer& offer) = 0;
  /// The same for one shard of a set.
  [[nodiscard]] virtual std::optional<std::uint64_t> prepare_shard(const ReplicaShard& shard) = 0;
  /// The next bytes of a shard. What goes wrong may be said by commit() only.
  virtual void write(std::uint32_t shard, ByteView bytes) = 0;
  /// Verifies, syncs, and makes visible what was written. True if a checkpoint is complete with it.
  virtual bool commit() = 0;

  /// Moves a committed checkpoint to the retired ones.
  virtual void retire(const format::BaseCheckpoint& checkpoint) = 0;
  /// Removes checkpoints under the rules of a prune.
  [[nodiscard]] virtual Removal remove(const std::vector<std::uint64_t>& steps) = 0;
};

}  // namespace ckpt::transport
