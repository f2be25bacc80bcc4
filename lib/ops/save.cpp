// SPDX-License-Identifier: Apache-2.0
// Saving one shard: find the content, write it into one container beside the sets, publish, commit.
#include <ckpt/save.hpp>

#include "format/constants.hpp"
#include "format/container_reader.hpp"
#include "format/container_writer.hpp"
#include "format/damaged.hpp"
#include "ops/check_container.hpp"
#include "ops/own_blocks.hpp"
#include "ops/save_entries.hpp"
#include "ops/save_input.hpp"
#include "ops/shard_content.hpp"
#include "ops/stored_bases.hpp"
#include "os/small_file.hpp"
#include "os/temporary_file.hpp"
#include "source/source_tree.hpp"
#include "store/attempts.hpp"
#include "store/leftovers.hpp"
#include "store/pending_set.hpp"
#include "store/pins.hpp"
#include "store/retire.hpp"
#include "store/skipping.hpp"
#include "store/swap.hpp"

#include <ckpt/address.hpp>
#include <ckpt/error.hpp>
#include <ckpt/version.hpp>

#include <algorithm>
#include <chrono>
#include <ctime>

namespace ckpt {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Everything that stays the same during one save.
struct Job {
  const SaveOptions& options;
  Monitor& monitor;
  std::vector<source::TreeEntry> entries;
  Clock::time_point start = Clock::now();
};

SaveReport report_of(const Job& job, const format::Catalog& catalog, std::uint64_t stored_bytes) {
  SaveReport report;
  report.step = job.options.step;
  report.attempt = catalog.shard.attempt;
  report.rank = job.options.rank;
  report.world_size = job.options.world_size;
  report.suspect = catalog.shard.marks.contains("suspect");
  report.files = catalog.files.size();
  report.tensors = catalog.tensors.size();
  report.raw_bytes = catalog.raw_bytes();
  report.stored_bytes = stored_bytes;
  return report;
}

/// The shard that this rank has already stored for this step.
struct ExistingShard {
  std::string path;
  std::optional<store::Checkpoint> checkpoint;  ///< that it's part of; nothing: it's in its set
};
std::optional<ExistingShard> existing_shard(const store::Store& store, const store::SetKey& set,
                                            const SaveOptions& options) {
  if (auto committed = options.replace ? store::find_to_replace(store, set.step) : store.find(set.step)) {
    if (committed->manifest.shards.empty()) return std::nullopt;
    const std::uint32_t world_size = committed->manifest.world_size;
    // A set that replaces needs the shards of all ranks, also of those that stay the same.
    if (options.replace && (world_size != 1 || set.world_size != 1)) return std::nullopt;
    if (world_size != set.world_size) {
      throw Error(Errc::exists,
                  "'" + store.address(set.step) + "' was saved with world size " + std::to_string(world_size))
          .with_hint("use --replace to put the new content in its place, or another step");
    }
    std::string path = committed->shard_path(committed->manifest.shards[options.rank]);
    return ExistingShard{.path = std::move(path), .checkpoint = std::move(committed)};
  }
  const store::SetContent pending = store::pending_set(store, set);
  const auto own = pending.files.find(options.rank);
  if (own == pending.files.end()) return std::nullopt;
  return ExistingShard{.path = store.pending() + "/" + store::set_name(set) + "/" + own->second, .checkpoint = {}};
}

SaveReport skipped_report(const Job& job, const store::SetKey& set, std::string reason) {
  SaveReport report;
  report.step = set.step;
  report.attempt = set.attempt;
  report.rank = job.options.rank;
  report.world_size = set.world_size;
  report.state = SaveState::skipped;
  report.reason = std::move(reason);
  report.files = job.entries.size();
  report.seconds = seconds_since(job.start);
  return report;
}

bool holds(const store::Checkpoint& checkpoint, const store::SetKey& set, std::uint32_t rank, const Digest& root) {
  return checkpoint.manifest.world_size == set.world_size && checkpoint.manifest.shards[rank].root == root;
}

bool is_pending(const store::Store& store, const store::SetKey& set, std::uint32_t rank) {
  return store::pending_set(store, set).files.contains(rank) || store.find(set.step).has_value();
}

/// Commits the set if it's complete now, and fills in state and id.
std::optional<store::Checkpoint> commit(const Job& job, const store::Store& store, const store::SetKey& set,
                                        SaveReport& report) {
  store::CommitRequest request{.set = set, .timings = {}};
  if (!job.options.fixed_time) {
    request.timings = {{"save", seconds_since(job.start)}, {"write", report.write_seconds}};
  }
  auto committed = store::commit_if_complete(store, request);
  report.state = committed ? SaveState::durable : SaveState::written;
  if (committed) report.id = to_hex(committed->manifest.id);
  return committed;
}

/// If this very content is stored already: the report that says so, with the set committed if it's complete.
std::optional<SaveReport> already_saved(const Job& job, const store::Store& store, const store::SetKey& set) {
  // What is in memory is read once: when it's published, its root tells.
  const bool in_memory = std::any_of(job.entries.begin(), job.entries.end(),
                                     [](const source::TreeEntry& entry) { return entry.held != nullptr; });
  const auto existing = in_memory ? std::nullopt : existing_shard(store, set, job.options);
  if (!existing) return std::nullopt;
  std::optional<format::ContainerReader> stored;
  try {
    stored.emplace(existing->path);
  } catch (const Error& error) {
    // Committed in this moment, or damaged: publishing tells, and with --replace mends.
    if (error.code() != Errc::not_found && error.code() != Errc::damaged) throw;
    if (error.code() == Errc::damaged && !job.options.replace) throw;
    return std::nullopt;
  }
  if (!ops::has_same_content(job.entries, stored->catalog(), stored->index().root, job.options.jobs, job.monitor)) {
    if (job.options.replace) return std::nullopt;
    throw Error(Errc::exists,
                "'" + store.address(set.step) + "' holds other content of rank " + std::to_string(job.options.rank))
        .with_hint("use --replace to put the new content in its place, or another step");
  }
  // "Saved already" is only said of a copy that is whole.
  const auto problems = ops::check_sums(stored->file(), stored->footer(), {.jobs = job.options.jobs}, job.monitor);
  if (!problems.empty() && job.options.replace) return std::nullopt;
  if (!problems.empty()) {
    throw Error(Errc::damaged,
                "'" + store.address(set.step) + "' holds this content, damaged: " + problems.front().detail)
        .with_hint("ckpt-verify --repair may mend it; --replace writes it anew");
  }
  SaveReport report = report_of(job, stored->catalog(), stored->footer().file_size);
  report.unchanged = true;
  if (existing->checkpoint) {
    os::sync_directory(existing->checkpoint->directory);
    os::sync_directory(store.path());
    report.state = SaveState::durable;
    report.id = to_hex(existing->checkpoint->manifest.id);
    return report;
  }
  const auto committed = commit(job, store, set, report);
  // A manifest that a dead writer left in the set may name an older shard of this rank: then it's not saved yet.
  if (committed && !holds(*committed, set, job.options.rank, stored->index().root)) return std::nullopt;
  return report;
}

/// A checkpoint to keep differences from, which stays there as long as this does.
struct HeldBase {
  store::Checkpoint checkpoint;
  store::Pin pin;
};

std::optional<HeldBase> hold(const store::Store& store, std::optional<store::Checkpoint> checkpoint) {
  if (!checkpoint) return std::nullopt;
  auto pin = store::Pin::take(store, *checkpoint);
  if (!pin) return std::nullopt;
  return HeldBase{.checkpoint = std::move(*checkpoint), .pin = std::move(*pin)};
}

/// Nothing if there's none to take.
std::optional<HeldBase> choose_base(const Job& job, const store::Store& store) {
  const SaveOptions& options = job.options;
  if (options.encode == Encode::raw || options.base == BaseChoice::none) return std::nullopt;
  if (options.base == BaseChoice::step) {
    if (options.base_step == options.step) throw Error(Errc::invalid_argument, "a step can't be its own base");
    auto base = hold(store, store.resolve({.kind = Selector::Kind::step, .step = options.base_step}));
    if (base) return base;
    throw Error(Errc::busy, "'" + store.address(options.base_step) + "' is being changed in this moment");
  }
  for (const std::uint64_t step : store.unmarked(nullptr)) {
    if (step == options.step) continue;  // what is replaced goes away
    if (auto base = hold(store, store.find(step))) return base;
  }
  return std::nullopt;
}

/// What the shard will take, or a little more. A base that was stored by its own differences shows what they come to;
/// nothing else is known before everything is encoded.
std::uint64_t expected_size(const format::Catalog& catalog, const HeldBase* base) {
  const std::uint64_t raw = catalog.raw_bytes();
  double share = 1;
  if (base != nullptr && !base->checkpoint.manifest.bases.empty()) {
    const auto stored = static_cast<double>(base->checkpoint.manifest.stored_bytes());
    const auto base_raw = static_cast<double>(base->checkpoint.manifest.raw_bytes());
    if (base_raw > 0) share = std::min(1.0, 1.1 * stored / base_raw);
  }
  // Headers, index and sums: less than a thousandth and a few hundred bytes a block.
  return static_cast<std::uint64_t>(share * static_cast<double>(raw)) + raw / 1000 + 4096 +
         catalog.block_sizes.size() * 256;
}

void require_space(const std::string& store, std::uint64_t needed) {
  const std::uint64_t available = os::free_space(os::existing_ancestor(store));
  if (needed <= available) return;
  throw Error(Errc::no_space, "store '" + store + "' has room for " + std::to_string(available) + " bytes, and " +
                                  std::to_string(needed) + " are needed")
      .with_hint("free some space; nothing was written");
}

/// Opens the base; one that's damaged is no reason not to save.
std::unique_ptr<ops::BaseBlocks> open_base(const Job& job, const store::Checkpoint& base,
                                           const format::Catalog& catalog, const std::vector<ops::BlockPiece>& pieces) {
  try {
    return std::make_unique<ops::BaseBlocks>(base, job.options.rank, catalog, pieces);
  } catch (const format::Damaged& damage) {
    if (job.options.base == BaseChoice::step) throw;
    job.monitor.warning(std::string("stored without a base, which is damaged: ") + damage.what());
    return nullptr;
  }
}

/// Writes the container under a temporary name, synced. Lists the bases that it may need in `catalog`.
format::ContainerWriter::Finished write_container(const Job& job, const os::TemporaryFile& temporary,
                                                  format::Catalog& catalog, const std::optional<HeldBase>& held) {
  const SaveOptions& options = job.options;
  if (options.encode == Encode::raw) {
    format::ContainerWriter writer(temporary.share(), temporary.path(), catalog, 0);
    ops::read_blocks(job.entries, catalog, options.jobs, job.monitor, "write",
                     [&](ByteView raw, const Digest& hash) { writer.add({.stored = raw, .hash = hash}); });
    return writer.finish();
  }
  std::vector<ops::BlockPiece> pieces = ops::describe_pieces(catalog);
  std::unique_ptr<ops::BaseBlocks> base;
  if (held) base = open_base(job, held->checkpoint, catalog, pieces);
  if (base) catalog.bases = base->checkpoints();
  const ops::SourceBytes bytes(job.entries);
  const ops::EncodeSettings settings{
      .effort = options.encode == Encode::best ? codec::Effort::best : codec::Effort::fast, .check = options.check};
  ops::ShardEncoder encoder(settings, bytes, catalog, std::move(pieces), std::move(base), job.monitor);
  format::ContainerWriter writer(temporary.share(), temporary.path(), catalog,
                                 format::incompat_typed | format::incompat_bases);
  ops::OwnBlocks own(options.rank);
  ops::encode_blocks(
      job.entries, catalog, options.jobs, job.monitor, "write",
      [&](std::uint64_t block, ByteView raw, const Digest& hash, Bytes& out) {
        return encoder.encode(block, raw, hash, out);
      },
      [&](std::uint64_t block, ByteView raw, const Digest& hash, const ops::EncodedBlock& encoded, ByteView stored) {
        writer.add(own.add(
            {.codec = encoded.codec, .stored = stored, .hash = hash, .depth = encoded.depth, .base = encoded.base},
            block, raw.size(), encoder.deepest(block)));
      });
  return writer.finish();
}

void read_back(const Job& job, const std::string& path) {
  const format::ContainerReader written(path, std::make_shared<const ops::StoredBases>(job.options.store),
                                        os::CacheUse::bypass);
  auto problems = ops::check_sums(written.file(), written.footer(), {.jobs = job.options.jobs}, job.monitor);
  if (problems.empty()) problems = ops::check_blocks(written, {.jobs = job.options.jobs}, job.monitor);
  if (problems.empty()) return;
  throw Error(Errc::damaged, "what was written reads back differently: " + problems.front().detail)
      .with_hint("the disk, its cable or the memory is at fault; nothing was committed");
}

void publish_and_commit(const Job& job, const store::Store& store, const store::SetKey& set,
                        const std::string& temporary, const Digest& root, SaveReport& report) {
  constexpr int patience = 16;
  for (int i = 0; i < patience; ++i) {
    const store::Published published = store::publish_shard(
        store,
        {.set = set, .rank = job.options.rank, .root = root, .temporary = temporary, .replace = job.options.replace});
    if (published == store::Published::committed) {
      report.unchanged = true;
      report.state = SaveState::durable;
      report.id = to_hex(store.resolve({.kind = Selector::Kind::step, .step = set.step}).manifest.id);
      return;
    }
    report.unchanged = published == store::Published::in_set;
    const auto committed = commit(job, store, set, report);
    // A manifest that a dead writer left in the set may name an older shard of this rank: then again, over that one.
    // And a set that was dropped while this shard went into it has lost it.
    if (committed ? holds(*committed, set, job.options.rank, root) : is_pending(store, set, job.options.rank)) return;
  }
  throw Error(Errc::busy, "'" + store.address(set.step) + "' keeps changing");
}

}  // namespace

SaveReport ops::save_entries(const SaveOptions& options, std::vector<source::TreeEntry> entries, Monitor& monitor) {
  const bool store_exists = os::exists(options.store + "/" + store::description_file);
  if (!store_exists && !options.create) (void)store::Store::open_for_writing(options.store, false);  // says why not
  Job job{.options = options, .monitor = monitor, .entries = std::move(entries)};

  store::SetKey set{.step = options.step, .world_size = options.world_size, .attempt = options.attempt.value_or(0)};
  if (store_exists) {
    const store::Store store = store::Store::open_for_writing(options.store, false);
    if (!options.attempt) set.attempt = store::highest_attempt(store);
    store::open_attempt(store, set.attempt);
    if (options.resumed_from) {
      const std::size_t moved = store::retire_newer(store, *options.resumed_from, set.attempt);
      if (moved > 0) monitor.note("retired " + std::to_string(moved) + " newer checkpoints and sets");
    }
    store::clean_leftovers(store);
    store::help_complete_sets(store);
    if (auto report = already_saved(job, store, set)) {
      report->seconds = seconds_since(job.start);
      return *report;
    }
  }

  format::ShardInfo shard{.step = set.step,
                          .attempt = set.attempt,
                          .rank = options.rank,
                          .world_size = options.world_size,
                          .meta = options.meta,
                          .created = options.fixed_time ? *options.fixed_time : std::time(nullptr),
                          .marks = {},
                          .writer = std::string("ckpt ") + version()};
  format::Catalog catalog =
      ops::describe_content(job.entries, std::move(shard), options.allow_malformed, options.jobs, monitor);

  // Before the store is made; with a base less may do.
  if (!os::exists(options.store)) require_space(options.store, expected_size(catalog, nullptr));
  const store::Store store = store::Store::open_for_writing(options.store, options.create);
  store::open_attempt(store, set.attempt);
  if (auto reason = store::decide_to_save(store, set)) return skipped_report(job, set, std::move(*reason));
  SaveReport report = report_of(job, catalog, 0);
  const auto write_start = Clock::now();
  const os::TemporaryFile temporary(store.scratch(), 0444);
  const std::optional<HeldBase> base = choose_base(job, store);  // held until the commit
  require_space(options.store, expected_size(catalog, base ? &*base : nullptr));
  const format::ContainerWriter::Finished finished = write_container(job, temporary, catalog, base);
  report.stored_bytes = finished.size;
  report.write_seconds = seconds_since(write_start);
  if (options.read_back) read_back(job, temporary.path());
  const auto commit_start = Clock::now();
  publish_and_commit(job, store, set, temporary.path(), finished.root, report);
  report.commit_seconds = seconds_since(commit_start);
  report.seconds = seconds_since(job.start);
  return report;
}

SaveReport save(const SaveOptions& options, Monitor& monitor) {
  if (options.store.empty()) throw Error(Errc::invalid_argument, "the store has an empty name");
  ops::check_save_options(options);
  // Before standard input is read: it's gone then.
  if (!options.create) (void)store::Store::open_for_writing(options.store, false);
  ops::SaveInput input = ops::find_input(options, options.store, monitor);
  return ops::save_entries(options, std::move(input.entries), monitor);
}

}  // namespace ckpt
