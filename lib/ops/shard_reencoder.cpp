// SPDX-License-Identifier: Apache-2.0
#include "ops/shard_reencoder.hpp"

#include "core/pipeline.hpp"
#include "core/stop.hpp"
#include "format/constants.hpp"
#include "ops/own_blocks.hpp"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <unordered_set>
#include <utility>

namespace ckpt::ops {
namespace {

/// Runs of a shard that an estimate looks at.
constexpr std::size_t sampled_runs = 24;

}  // namespace

void LowerRanks::add(std::uint32_t rank, const format::ContainerIndex& index) {
  for (std::uint64_t b = 0; b < index.blocks.size(); ++b) {
    const format::BlockRecord& block = index.blocks[b];
    if (block.codec == codec::Codec::reference || block.raw_size < least_referred) continue;
    by_hash_.try_emplace(block.hash, Block{rank, b, block.raw_size, block.depth});
  }
}

std::optional<LowerRanks::Block> LowerRanks::find(const Digest& hash, std::uint64_t raw_size) const {
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end() || found->second.raw_size != raw_size) return std::nullopt;
  return found->second;
}

ShardReencoder::ShardReencoder(std::shared_ptr<const format::ContainerReader> old, const format::BaseCheckpoint& own,
                               const ReencodePlan& plan, const LowerRanks* lower, Monitor& monitor,
                               const ContentChange* change, const std::map<std::string, std::string>& marks)
    : old_(std::move(old)),
      own_(own),
      plan_(plan),
      lower_(lower),
      monitor_(monitor),
      change_(change),
      bytes_(*old_, change_),
      catalog_(old_->catalog()) {
  for (const auto& [mark, reason] : marks) catalog_.shard.marks[mark] = reason;
  std::vector<BlockPiece> pieces = describe_pieces(catalog_);
  std::unique_ptr<BaseBlocks> base;
  if (plan.base) base = std::make_unique<BaseBlocks>(*plan.base, catalog_.shard.rank, catalog_, pieces, plan.avoid);
  catalog_.bases = base ? base->checkpoints() : std::vector<format::BaseCheckpoint>();
  for (const format::BaseCheckpoint& used : old_->catalog().bases)
    rows_.push_back(format::row_of(catalog_.bases, used));
  if (lower_ != nullptr) own_row_ = format::row_of(catalog_.bases, own_);
  EncodeSettings settings = plan.settings;
  if (plan.has_dependents || plan.only_where_needed) {
    for (const format::BlockRecord& block : old_->index().blocks) settings.depth_limits.push_back(block.depth);
  }
  encoder_.emplace(settings, bytes_, catalog_, std::move(pieces), std::move(base), monitor);
}

bool ShardReencoder::stays(const format::BlockRecord& block) const {
  if (!plan_.only_where_needed) return false;
  if (!block.base || block.base->checkpoint == format::own_shard) return true;
  return !contains(plan_.avoid, old_->catalog().bases.at(block.base->checkpoint));
}

void ShardReencoder::encode_block(std::uint64_t block, RunReader& reader, EncodedRun& run) {
  const format::BlockRecord& record = old_->index().blocks[block];
  Bytes& out = *run.stored;
  const std::size_t begin = out.size();
  // Also what is taken over is checked: a new container must not hide old damage under new sums.
  const ByteView before = reader.decode(block);
  auto changed = changed_.take();
  const ByteView raw = with_change(change_, block, before, *changed);
  const Digest hash = raw.data() == before.data() ? record.hash : xxh3_128(raw);
  EncodedBlock encoded;
  const auto below = lower_ == nullptr ? std::nullopt : lower_->find(record.hash, record.raw_size);
  if (stays(record)) {
    append(out, reader.stored(block));
    encoded = {.codec = record.codec, .depth = record.depth, .base = record.base};
    if (encoded.base && encoded.base->checkpoint != format::own_shard) {
      encoded.base->checkpoint = rows_.at(encoded.base->checkpoint);
    }
  } else if (below && below->depth < encoder_->deepest(block)) {
    encoded = {.codec = codec::Codec::reference,
               .depth = static_cast<std::uint8_t>(below->depth + 1),
               .base = format::BaseRef{
                   .checkpoint = own_row_, .rank = below->rank, .block = below->number, .hash = record.hash}};
  } else {
    encoded = encoder_->encode(block, raw, hash, out);
    if (encoded.codec == codec::Codec::raw) append(out, raw);
  }
  encoded.begin = begin;
  encoded.size = out.size() - begin;
  run.blocks.push_back(encoded);
  run.hashes.push_back(hash);
}

ShardReencoder::EncodedRun ShardReencoder::encode_run(const BlockRun& run) {
  EncodedRun encoded{.stored = buffers_.take(), .blocks = {}, .hashes = {}};
  encoded.stored->clear();
  auto reader = readers_.take();
  reader->open(*old_, run);
  for (std::uint64_t b = run.first; b < run.first + run.count; ++b) {
    encode_block(b, *reader, encoded);
  }
  return encoded;
}

format::ContainerWriter::Finished ShardReencoder::write(os::Fd file, const std::string& path, unsigned jobs) {
  format::ContainerWriter writer(std::move(file), path, catalog_, format::incompat_typed | format::incompat_bases);
  const std::vector<BlockRun> runs = plan_runs(*old_, 0, old_->index().blocks.size());
  const unsigned workers = worker_count(jobs);
  const std::uint64_t total = catalog_.raw_bytes();
  OwnBlocks own(catalog_.shard.rank);
  std::uint64_t done = 0;
  run_ordered(
      runs.size(), workers, std::size_t{workers} + 2,
      [&](std::size_t i) {
        require_no_stop(monitor_);
        return encode_run(runs[i]);
      },
      [&](std::size_t i, EncodedRun run) {
        for (std::uint64_t b = 0; b < runs[i].count; ++b) {
          const std::uint64_t number = runs[i].first + b;
          const EncodedBlock& block = run.blocks[b];
          const format::BlockRecord& record = old_->index().blocks[number];
          writer.add(own.add({.codec = block.codec,
                              .stored = ByteView(*run.stored).subspan(block.begin, block.size),
                              .hash = run.hashes[b],
                              .depth = block.depth,
                              .base = block.base},
                             number, record.raw_size, encoder_->deepest(number)));
          done += record.raw_size;
        }
        monitor_.progress({.stage = "encode", .done = done, .total = total});
      });
  format::ContainerWriter::Finished finished = writer.finish();
  if (change_ == nullptr && finished.root != old_->index().root)
    throw std::logic_error("a shard encoded anew has another root");
  return finished;
}

std::uint64_t ShardReencoder::estimate(unsigned jobs) {
  const auto& blocks = old_->index().blocks;
  // Of blocks that are the same as others only the first one costs anything.
  std::unordered_set<Digest, DigestHash> seen;
  std::vector<bool> repeats(blocks.size());
  std::uint64_t overhead = old_->footer().file_size;
  for (std::uint64_t b = 0; b < blocks.size(); ++b) {
    overhead -= blocks[b].stored_size;
    if (blocks[b].raw_size < least_referred) continue;
    repeats[b] = !seen.insert(blocks[b].hash).second;
  }
  const auto wanted = [&](std::uint64_t block) { return !repeats[block]; };
  const std::vector<BlockRun> runs = plan_runs(*old_, 0, blocks.size(), wanted);
  std::uint64_t all = 0;
  for (std::uint64_t b = 0; b < blocks.size(); ++b) all += repeats[b] ? 0 : blocks[b].raw_size;

  std::vector<BlockRun> sample;
  const std::size_t count = std::min(runs.size(), sampled_runs);
  for (std::size_t i = 0; i < count; ++i) sample.push_back(runs[i * runs.size() / count]);
  std::atomic<std::uint64_t> raw = 0;
  std::atomic<std::uint64_t> stored = 0;
  run_parallel(sample.size(), worker_count(jobs), [&](std::size_t i) {
    require_no_stop(monitor_);
    const EncodedRun run = encode_run(sample[i]);
    for (std::uint64_t b = 0; b < sample[i].count; ++b) {
      raw += blocks[sample[i].first + b].raw_size;
      stored += run.blocks[b].size;
    }
  });
  if (raw == 0) return overhead;
  const double share = static_cast<double>(stored) / static_cast<double>(raw);
  return overhead + static_cast<std::uint64_t>(share * static_cast<double>(all));
}

std::vector<format::BaseCheckpoint> ShardReencoder::bases_in(const format::ContainerIndex& index) const {
  std::vector<format::BaseCheckpoint> bases = format::used_bases(index, catalog_.bases);
  std::erase(bases, own_);
  return bases;
}

}  // namespace ckpt::ops
