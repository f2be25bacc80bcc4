// SPDX-License-Identifier: Apache-2.0
#include "ops/verify_checkpoint.hpp"

#include "core/float_formats.hpp"
#include "format/damaged.hpp"
#include "ops/describe_hit.hpp"
#include "ops/open_shard.hpp"
#include "ops/repair.hpp"
#include "ops/repair_from_replicas.hpp"
#include "ops/stored_bases.hpp"
#include "ops/view_runs.hpp"
#include "os/fd.hpp"
#include "store/bases.hpp"

#include <algorithm>
#include <cerrno>
#include <random>
#include <utility>

namespace ckpt::ops {
namespace {

/// The most that is checked between two looks at the clock.
constexpr std::uint64_t piece = 128U << 20U;
static_assert(piece % check_unit == 0);

/// A share of all places, another one at each run.
std::function<bool(std::uint64_t)> sampler(double percent) {
  std::random_device device;
  const std::uint64_t seed = static_cast<std::uint64_t>(device()) << 32U | device();
  const double share = percent / 100;
  return [seed, share](std::uint64_t place) {
    std::minstd_rand random(static_cast<std::uint32_t>((place * 0x9e3779b97f4a7c15ULL ^ seed) >> 32U));
    random.discard(1);
    return std::generate_canonical<double, 32>(random) < share;
  };
}

/// A sum says which 64 KiB are altered; the blocks' own hashes say which of the blocks in them.
std::vector<Problem> narrow_down(const format::ContainerReader& container, const Problem& problem) {
  std::vector<Problem> parts;
  if (problem.kind != DamageKind::altered) return {problem};
  format::BlockDecoder decoder;
  for (std::uint64_t b = 0; b < container.index().blocks.size(); ++b) {
    const format::BlockRecord& block = container.index().blocks[b];
    const std::uint64_t begin = std::max(problem.begin, block.place);
    const std::uint64_t end = std::min(problem.end, block.place + block.stored_size);
    if (begin >= end) continue;
    try {
      (void)decoder.read(container, b);
    } catch (const format::Damaged& damage) {
      if (damage.kind() != DamageKind::altered)
        return {problem};  // can't be read a second time: what is known is enough
      parts.push_back({.kind = problem.kind, .begin = begin, .end = end, .detail = problem.detail});
    }
  }
  // Headers and padding are in no block.
  return parts.empty() ? std::vector<Problem>{problem} : parts;
}

}  // namespace

bool is_no_access(const Error& error) {
  const int number = error.system_errno();
  return number == EACCES || number == EPERM || number == EMFILE || number == ENFILE || number == ENOMEM;
}

VerifyLevel effective_level(const VerifyOptions& options) {
  return options.finite || options.repair ? VerifyLevel::deep : options.level;
}

std::string_view to_string(VerifyLevel level) {
  switch (level) {
    case VerifyLevel::quick: return "quick";
    case VerifyLevel::stored: return "stored";
    case VerifyLevel::deep: return "deep";
  }
  return "unknown";
}

CheckpointCheck::CheckpointCheck(const store::Store& store, store::Checkpoint checkpoint, const VerifyOptions& options,
                                 const ReplicaBlocks* replicas, Monitor& monitor)
    : store_(store), checkpoint_(std::move(checkpoint)), options_(options), replicas_(replicas), monitor_(monitor) {
  address_ =
      checkpoint_.retired
          ? to_string(Address{.store = store.path(),
                              .selector = {.kind = Selector::Kind::id, .id_prefix = to_hex(checkpoint_.manifest.id)}})
          : store.address(checkpoint_.manifest.step);
  total_ = checkpoint_.manifest.stored_bytes();
}

void CheckpointCheck::check_bases() {
  for (const format::BaseCheckpoint& base : checkpoint_.manifest.bases) {
    if (store::find_base(store_.path(), base)) continue;
    damages_.push_back({.checkpoint = address_,
                        .kind = DamageKind::missing,
                        .shard = {},
                        .begin = 0,
                        .end = 0,
                        .file = {},
                        .tensor = {},
                        .detail = "the checkpoint of step " + std::to_string(base.step) + " with the id " +
                                  to_hex(base.id) + ", which this one is stored against, is not in the store",
                        .repaired = false,
                        .repair = {}});
  }
}

bool CheckpointCheck::run(const std::function<bool()>& is_over) {
  if (position_.rank == 0 && position_.byte == 0) check_bases();
  for (std::size_t s = 0; s < checkpoint_.manifest.shards.size(); ++s) {
    const format::ManifestShard shard = checkpoint_.manifest.shards[s];  // a copy: a repair swaps the manifest
    if (shard.rank < position_.rank) continue;
    if (shard.rank > position_.rank) {
      position_ = {.rank = shard.rank, .byte = 0};
      if (is_over()) return false;
    }
    const std::size_t first_damage = damages_.size();
    if (!check_shard(shard, is_over)) return false;
    if (damages_.size() > first_damage) {
      if (auto now = encoded_anew_since(checkpoint_); now && now->manifest.shards[s].file != shard.file) {
        // The old container was looked at beside new bases: only the new one counts.
        checkpoint_ = std::move(*now);
        damages_.resize(first_damage);
        position_.byte = 0;
        const format::ManifestShard renamed = checkpoint_.manifest.shards[s];
        if (!check_shard(renamed, is_over)) return false;
      }
    }
    if (damages_.size() > first_damage && is_gone()) {
      // What it was stored against went with it.
      damages_.resize(first_damage);
      return true;
    }
    if (options_.repair && damages_.size() > first_damage) repair(shard, first_damage);
  }
  return true;
}

bool CheckpointCheck::is_gone() const {
  if (!os::exists(checkpoint_.directory)) return true;
  try {
    const auto now = store::read_manifest(checkpoint_.directory);
    return now && now->id != checkpoint_.manifest.id;
  } catch (const format::Damaged&) {
    return false;
  }
}

void CheckpointCheck::add(const format::ManifestShard& shard, const format::ContainerReader* container,
                          const Problem& problem) {
  Damage damage{.checkpoint = address_,
                .kind = problem.kind,
                .shard = shard.file,
                .begin = problem.begin,
                .end = problem.end,
                .file = {},
                .tensor = {},
                .detail = problem.detail,
                .repaired = false,
                .repair = {}};
  if (container != nullptr) {
    const Hit hit = describe_hit(*container, problem.begin, problem.end);
    damage.file = hit.file;
    damage.tensor = hit.tensor;
    if (hit.more > 0) damage.detail += "; " + std::to_string(hit.more) + " more tensors are hit";
  }
  damages_.push_back(std::move(damage));
}

bool CheckpointCheck::matches_manifest(const format::ContainerReader& container, const format::ManifestShard& shard) {
  const format::ShardInfo& info = container.catalog().shard;
  const format::Manifest& manifest = checkpoint_.manifest;
  const bool same = container.digest() == shard.digest && container.index().root == shard.root &&
                    container.footer().file_size == shard.size && info.rank == shard.rank &&
                    info.step == manifest.step && info.world_size == manifest.world_size;
  if (!same) add(shard, nullptr, {.detail = "it is another container than the manifest names"});
  return same;
}

void CheckpointCheck::check_without_index(const os::AdaptiveReader& file, const format::ManifestShard& shard) {
  try {
    Digest digest;
    const format::Footer footer = format::read_footer(file, &digest);
    const std::size_t known = damages_.size() - 1;
    for (const Problem& problem : check_sums(file, footer, {.jobs = options_.jobs}, monitor_)) {
      // What kept the container from being opened is named already.
      const Damage& first = damages_[known];
      if (problem.begin < first.end && problem.end > first.begin) continue;
      add(shard, nullptr, problem);
    }
  } catch (const Error& error) {
    // Without footer or sums nothing more can be said than has been.
    if (error.code() != Errc::damaged && error.code() != Errc::io) throw;
  }
}

bool CheckpointCheck::check_shard(const format::ManifestShard& shard, const std::function<bool()>& is_over) {
  const std::string path = checkpoint_.shard_path(shard);
  const VerifyLevel level = effective_level(options_);
  std::optional<format::ContainerReader> container;
  try {
    container.emplace(path, bases_for(checkpoint_));
    if (!matches_manifest(*container, shard)) return true;
  } catch (const format::Damaged& damage) {
    Problem problem{.kind = damage.kind(), .begin = damage.begin(), .end = damage.end(), .detail = damage.what()};
    add(shard, nullptr, problem);
    if (level != VerifyLevel::quick) check_without_index(os::AdaptiveReader(path), shard);
    return true;
  } catch (const Error& error) {
    if (error.code() == Errc::not_found) {
      // A re-encoding or a repair gives a shard a new name: look again, once.
      const auto now = store::read_manifest(checkpoint_.directory);
      if (now && now->shards.size() > shard.rank && now->shards[shard.rank].file != shard.file) {
        const format::ManifestShard renamed = now->shards[shard.rank];
        if (now->id == checkpoint_.manifest.id) checkpoint_.manifest = *now;
        return check_shard(renamed, is_over);
      }
      if (!os::exists(checkpoint_.directory)) return true;  // retired in this moment
      add(shard, nullptr, {.kind = DamageKind::missing, .detail = "the file is missing"});
      return true;
    }
    if ((error.code() != Errc::io && error.code() != Errc::unsupported) || is_no_access(error)) throw;
    add(shard, nullptr, {.kind = DamageKind::unreadable, .detail = error.what()});
    return true;
  }
  if (level == VerifyLevel::quick) return true;

  CheckRequest request{.jobs = options_.jobs};
  std::vector<std::uint64_t> sums;
  if (options_.sample_percent) request.wanted = sampler(*options_.sample_percent);
  request.on_progress = [&](std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    bytes_ += bytes;
    monitor_.progress({.stage = "verify", .done = bytes_, .total = total_});
  };
  if (options_.finite) {
    request.on_block = [&](std::uint64_t block, ByteView raw) { count_non_finite(*container, block, raw); };
  }
  const std::uint64_t size = container->footer().file_size;
  for (; position_.byte < size; position_.byte += piece) {
    if (position_.byte > 0 && is_over()) return false;
    request.begin = position_.byte;
    request.end = position_.byte + piece;
    std::vector<Problem> in_sums;
    try {
      if (sums.empty()) sums = format::read_sums(container->file(), container->footer());
      request.sums = &sums;
      in_sums = check_sums(container->file(), container->footer(), request, monitor_);
    } catch (const format::Damaged& damage) {
      // The sums themselves: without them nothing can be said about the other stored bytes.
      add(shard, nullptr,
          {.kind = damage.kind(), .begin = damage.begin(), .end = damage.end(), .detail = damage.what()});
      return true;
    } catch (const Error& error) {
      if (error.code() != Errc::io) throw;
      const format::Section& section = container->footer().sums;
      add(shard, nullptr,
          {.kind = DamageKind::unreadable,
           .begin = section.offset,
           .end = section.offset + section.size,
           .detail = error.what()});
      return true;
    }
    for (const Problem& problem : in_sums) {
      for (const Problem& part : narrow_down(*container, problem)) add(shard, &*container, part);
    }
    if (level != VerifyLevel::deep) continue;
    CheckRequest again = request;
    again.on_progress = nullptr;  // the same bytes, counted already
    for (const Problem& problem : check_blocks(*container, again, monitor_)) {
      const auto covers = [&](const Problem& sum) { return sum.begin < problem.end && sum.end > problem.begin; };
      if (std::none_of(in_sums.begin(), in_sums.end(), covers)) add(shard, &*container, problem);
    }
  }
  return true;
}

void CheckpointCheck::repair(const format::ManifestShard& shard, std::size_t first_damage) {
  // What was found is reported all the same, whatever goes wrong here.
  const auto attempt = [](auto mend) {
    try {
      return mend();
    } catch (const Error& error) {
      if (error.code() == Errc::interrupted) throw;
      return RepairResult{.repaired = false, .what = error.what()};
    }
  };
  RepairResult result = attempt([&] { return repair_shard(store_, checkpoint_, shard, options_.jobs, monitor_); });
  if (!result.repaired && replicas_ != nullptr) {
    result =
        attempt([&] { return repair_from_replicas(store_, checkpoint_, shard, *replicas_, options_.jobs, monitor_); });
  }
  for (std::size_t i = first_damage; i < damages_.size(); ++i) {
    damages_[i].repaired = result.repaired;
    damages_[i].repair = result.what;
  }
  // The manifest is another one now; the next shard's repair must build on it.
  if (!result.repaired) return;
  if (auto now = store::read_manifest(checkpoint_.directory)) checkpoint_.manifest = std::move(*now);
}

void CheckpointCheck::count_non_finite(const format::ContainerReader& container, std::uint64_t block, ByteView raw) {
  const format::Catalog& catalog = container.catalog();
  const format::FileEntry& file = file_of_block(catalog, block);
  std::uint64_t begin = 0;
  for (std::uint64_t b = file.first_block; b < block; ++b) begin += catalog.block_sizes[b];
  const std::uint64_t end = begin + raw.size();
  for (std::uint64_t t = file.first_tensor; t < file.first_tensor + file.tensor_count; ++t) {
    const Tensor& tensor = catalog.tensors[t];
    // Types of less than a byte hold integers.
    if (!tensor.has_bytes || bits_of(tensor.dtype) % 8 != 0) continue;
    NonFiniteCount count;
    for_each_run(tensor, begin, std::min(view_end(tensor).value_or(0), end), [&](std::uint64_t at, std::uint64_t size) {
      const NonFiniteCount more = ckpt::count_non_finite(tensor.dtype, raw.subspan(at - begin, size));
      count.nan += more.nan;
      count.inf += more.inf;
    });
    if (count.nan == 0 && count.inf == 0) continue;
    const std::lock_guard lock(mutex_);
    const auto known = std::find_if(non_finite_.begin(), non_finite_.end(), [&](const NonFinite& n) {
      return n.rank == catalog.shard.rank && n.file == file.path && n.tensor == tensor.name;
    });
    NonFinite& entry = known != non_finite_.end() ? *known : non_finite_.emplace_back();
    entry.checkpoint = address_;
    entry.rank = catalog.shard.rank;
    entry.file = file.path;
    entry.tensor = tensor.name;
    entry.nan += count.nan;
    entry.inf += count.inf;
  }
}

}  // namespace ckpt::ops
