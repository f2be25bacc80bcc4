// SPDX-License-Identifier: Apache-2.0
// One shard that is encoded anew: block by block from its old container to a new one that holds the same.
#pragma once

#include "format/container_reader.hpp"
#include "format/container_writer.hpp"
#include "ops/block_runs.hpp"
#include "ops/content_change.hpp"
#include "ops/reencode.hpp"
#include "ops/shard_encoder.hpp"
#include "os/temporary_file.hpp"

#include <ckpt/monitor.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace ckpt::ops {

/// The new blocks of the ranks that have been written: what replicas have in common is stored with the lowest one. Only
/// lower ranks are referred to, so chains have no cycles.
class LowerRanks {
 public:
  void add(std::uint32_t rank, const format::ContainerIndex& index);

  struct Block {
    std::uint32_t rank = 0;
    std::uint64_t number = 0;
    std::uint64_t raw_size = 0;
    std::uint8_t depth = 0;
  };
  [[nodiscard]] std::optional<Block> find(const Digest& hash, std::uint64_t raw_size) const;

 private:
  std::unordered_map<Digest, Block, DigestHash> by_hash_;
};

class ShardReencoder {
 public:
  /// `own` is the checkpoint that the container belongs to. `plan`, and `lower`, which may be null, outlive this
  /// object.
  /// With `change`, which outlives it, the new container holds other bytes, and says so in `marks`.
  ShardReencoder(std::shared_ptr<const format::ContainerReader> old, const format::BaseCheckpoint& own,
                 const ReencodePlan& plan, const LowerRanks* lower, Monitor& monitor,
                 const ContentChange* change = nullptr, const std::map<std::string, std::string>& marks = {});

  /// Writes the new container. Throws Damaged if the old one doesn't decode.
  [[nodiscard]] format::ContainerWriter::Finished write(os::Fd file, const std::string& path, unsigned jobs);

  /// About how large the new container would be, from a sample of its blocks. Writes nothing.
  [[nodiscard]] std::uint64_t estimate(unsigned jobs);

  /// The other checkpoints that a written index refers to.
  [[nodiscard]] std::vector<format::BaseCheckpoint> bases_in(const format::ContainerIndex& index) const;

 private:
  /// The blocks of one run, ready to be written.
  struct EncodedRun {
    Pool<Bytes>::Lease stored;
    std::vector<EncodedBlock> blocks;
    std::vector<Digest> hashes;
  };
  [[nodiscard]] bool stays(const format::BlockRecord& block) const;
  void encode_block(std::uint64_t block, RunReader& reader, EncodedRun& run);
  [[nodiscard]] EncodedRun encode_run(const BlockRun& run);

  std::shared_ptr<const format::ContainerReader> old_;
  format::BaseCheckpoint own_;
  const ReencodePlan& plan_;
  const LowerRanks* lower_;
  Monitor& monitor_;
  const ContentChange* change_;
  StoredBytes bytes_;
  format::Catalog catalog_;
  std::uint32_t own_row_ = 0;        ///< of the own checkpoint, where lower_ is there
  std::vector<std::uint32_t> rows_;  ///< of the old catalog's bases, in the new one's
  std::optional<ShardEncoder> encoder_;
  Pool<RunReader> readers_;
  Pool<Bytes> buffers_;
  Pool<Bytes> changed_;
};

}  // namespace ckpt::ops
