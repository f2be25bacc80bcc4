// SPDX-License-Identifier: Apache-2.0
#include "ops/reencode.hpp"

#include "core/pipeline.hpp"
#include "format/constants.hpp"
#include "format/container_writer.hpp"
#include "ops/block_runs.hpp"
#include "ops/open_shard.hpp"
#include "ops/own_blocks.hpp"
#include "ops/stop.hpp"
#include "os/temporary_file.hpp"
#include "store/bases.hpp"
#include "store/swap.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <utility>

namespace ckpt::ops {
namespace {

bool contains(const std::vector<format::BaseCheckpoint>& list, const format::BaseCheckpoint& checkpoint) {
  return std::find(list.begin(), list.end(), checkpoint) != list.end();
}

/// The blocks of one run, ready to be written.
struct EncodedRun {
  Pool<Bytes>::Lease stored;
  std::vector<EncodedBlock> blocks;
};

/// Encodes one shard into a temporary container.
class ShardReencoder {
 public:
  ShardReencoder(const store::Checkpoint& checkpoint, std::uint32_t rank, const ReencodePlan& plan, Monitor& monitor)
      : old_(open_shard(checkpoint, rank)), bytes_(*old_), plan_(plan), monitor_(monitor), catalog_(old_->catalog()) {
    std::vector<BlockPiece> pieces = describe_pieces(catalog_);
    std::unique_ptr<BaseBlocks> base;
    if (plan.base) base = std::make_unique<BaseBlocks>(*plan.base, rank, catalog_, pieces);
    catalog_.bases = base ? base->checkpoints() : std::vector<format::BaseCheckpoint>();
    for (const format::BaseCheckpoint& used : old_->catalog().bases) rows_.push_back(row_of(used));
    EncodeSettings settings = plan.settings;
    if (plan.has_dependents || plan.only_where_needed) {
      for (const format::BlockRecord& block : old_->index().blocks) settings.depth_limits.push_back(block.depth);
    }
    encoder_.emplace(settings, bytes_, catalog_, std::move(pieces), std::move(base), monitor);
  }

  format::ContainerWriter::Finished write(const os::TemporaryFile& temporary, unsigned jobs) {
    format::ContainerWriter writer(temporary.share(), temporary.path(), catalog_,
                                   format::incompat_typed | format::incompat_bases);
    const std::vector<BlockRun> runs = plan_runs(*old_, 0, old_->index().blocks.size());
    const unsigned workers = worker_count(jobs);
    OwnBlocks own(catalog_.shard.rank);
    Pool<RunReader> readers;
    Pool<Bytes> buffers;
    std::uint64_t done = 0;
    run_ordered(
        runs.size(), workers, std::size_t{workers} + 2,
        [&](std::size_t i) {
          require_no_stop(monitor_);
          auto reader = readers.take();
          return encode_run(runs[i], *reader, buffers.take());
        },
        [&](std::size_t i, EncodedRun run) {
          for (std::uint64_t b = 0; b < runs[i].count; ++b) {
            const std::uint64_t number = runs[i].first + b;
            const EncodedBlock& block = run.blocks[b];
            const format::BlockRecord& record = old_->index().blocks[number];
            writer.add(own.add({.codec = block.codec,
                                .stored = ByteView(*run.stored).subspan(block.begin, block.size),
                                .hash = record.hash,
                                .depth = block.depth,
                                .base = block.base},
                               number, record.raw_size, encoder_->deepest(number)));
            done += record.raw_size;
          }
          monitor_.progress({.stage = "encode", .done = done, .total = catalog_.raw_bytes()});
        });
    format::ContainerWriter::Finished finished = writer.finish();
    if (finished.root != old_->index().root) throw std::logic_error("a shard encoded anew has another root");
    return finished;
  }

  /// The checkpoints that a written index refers to.
  [[nodiscard]] std::vector<format::BaseCheckpoint> bases_in(const format::ContainerIndex& index) const {
    std::set<std::uint32_t> rows;
    for (const format::BlockRecord& block : index.blocks) {
      if (block.base && block.base->checkpoint != format::own_shard) rows.insert(block.base->checkpoint);
    }
    std::vector<format::BaseCheckpoint> bases;
    for (const std::uint32_t row : rows) bases.push_back(catalog_.bases.at(row));
    return bases;
  }

 private:
  std::uint32_t row_of(const format::BaseCheckpoint& checkpoint) {
    const auto known = std::find(catalog_.bases.begin(), catalog_.bases.end(), checkpoint);
    const auto row = static_cast<std::uint32_t>(known - catalog_.bases.begin());
    if (known == catalog_.bases.end()) catalog_.bases.push_back(checkpoint);
    return row;
  }

  [[nodiscard]] bool stays(const format::BlockRecord& block) const {
    if (!plan_.only_where_needed) return false;
    if (!block.base || block.base->checkpoint == format::own_shard) return true;
    return !contains(plan_.avoid, old_->catalog().bases.at(block.base->checkpoint));
  }

  EncodedRun encode_run(const BlockRun& run, RunReader& reader, Pool<Bytes>::Lease stored) {
    EncodedRun encoded{.stored = std::move(stored), .blocks = {}};
    encoded.stored->clear();
    reader.open(*old_, run);
    for (std::uint64_t b = run.first; b < run.first + run.count; ++b) {
      const format::BlockRecord& record = old_->index().blocks[b];
      const std::size_t begin = encoded.stored->size();
      // Also what is taken over is checked: a new container must not hide old damage under new sums.
      const ByteView raw = reader.decode(b);
      EncodedBlock block;
      if (stays(record)) {
        append(*encoded.stored, reader.stored(b));
        block = {.codec = record.codec, .depth = record.depth, .base = record.base};
        if (block.base && block.base->checkpoint != format::own_shard) {
          block.base->checkpoint = rows_.at(block.base->checkpoint);
        }
      } else {
        block = encoder_->encode(b, raw, record.hash, *encoded.stored);
        if (block.codec == codec::Codec::raw) append(*encoded.stored, raw);
      }
      block.begin = begin;
      block.size = encoded.stored->size() - begin;
      encoded.blocks.push_back(block);
    }
    return encoded;
  }

  std::shared_ptr<const format::ContainerReader> old_;
  StoredBytes bytes_;
  const ReencodePlan& plan_;
  Monitor& monitor_;
  format::Catalog catalog_;
  std::vector<std::uint32_t> rows_;  ///< of the old catalog's bases, in the new one's
  std::optional<ShardEncoder> encoder_;
};

/// What the avoided checkpoints themselves depend on, and isn't avoided: the nearest of these.
std::optional<store::Checkpoint> base_beyond(const store::Store& store, const store::Checkpoint& checkpoint,
                                             const std::vector<format::BaseCheckpoint>& avoid) {
  std::deque<format::BaseCheckpoint> open(checkpoint.manifest.bases.begin(), checkpoint.manifest.bases.end());
  std::set<format::BaseCheckpoint> seen;
  while (!open.empty()) {
    const format::BaseCheckpoint next = open.front();
    open.pop_front();
    if (!seen.insert(next).second) continue;
    const auto found = store::find_base(store.path(), next);
    if (!found) continue;
    if (!contains(avoid, next)) return found;
    open.insert(open.end(), found->manifest.bases.begin(), found->manifest.bases.end());
  }
  return std::nullopt;
}

}  // namespace

ReencodeResult reencode(const store::Store& store, const store::Checkpoint& checkpoint, const ReencodePlan& plan,
                        unsigned jobs, Monitor& monitor) {
  ReencodeResult result{.stored_before = checkpoint.manifest.stored_bytes(), .stored_after = 0};
  format::Manifest manifest = checkpoint.manifest;
  manifest.bases.clear();
  std::deque<os::TemporaryFile> temporaries;
  std::vector<store::NewContainer> containers;
  for (format::ManifestShard& shard : manifest.shards) {
    ShardReencoder reencoder(checkpoint, shard.rank, plan, monitor);
    const os::TemporaryFile& temporary = temporaries.emplace_back(store.scratch(), 0444);
    const auto finished = reencoder.write(temporary, jobs);
    shard.size = finished.size;
    shard.digest = finished.digest;
    containers.push_back({.rank = shard.rank, .temporary = temporary.path()});
    for (const format::BaseCheckpoint& base : reencoder.bases_in(finished.index)) {
      const bool listed = std::find(manifest.bases.begin(), manifest.bases.end(), base) != manifest.bases.end();
      if (!listed) manifest.bases.push_back(base);
    }
  }
  store::swap_containers(store, checkpoint, std::move(manifest), containers);
  for (const format::ManifestShard& shard : store::read_manifest(checkpoint.directory).value().shards) {
    result.stored_after += shard.size;
  }
  return result;
}

void rebase(const store::Store& store, const store::Checkpoint& checkpoint,
            const std::vector<format::BaseCheckpoint>& avoid, unsigned jobs, Monitor& monitor) {
  const ReencodePlan plan{.base = base_beyond(store, checkpoint, avoid),
                          .avoid = avoid,
                          .only_where_needed = true,
                          .has_dependents = true,
                          .settings = {}};
  (void)reencode(store, checkpoint, plan, jobs, monitor);
}

void drop_tensors(const store::Store&, const store::Checkpoint& checkpoint, const std::string&, unsigned, Monitor&) {
  throw Error(Errc::unsupported, "'" + checkpoint.directory + "' can't be encoded anew by this version");
}

}  // namespace ckpt::ops
