// SPDX-License-Identifier: Apache-2.0
// Restoring: choose the checkpoint, see what is there already, write the rest beside it, rename.
#include <ckpt/restore.hpp>

#include "core/pipeline.hpp"
#include "format/damaged.hpp"
#include "ops/destination.hpp"
#include "ops/file_writer.hpp"
#include "ops/open_shard.hpp"
#include "ops/replica_blocks.hpp"
#include "ops/restore_plan.hpp"
#include "os/small_file.hpp"
#include "store/pins.hpp"
#include "store/store.hpp"
#include "store/verify_records.hpp"

#include <ckpt/error.hpp>

#include <fcntl.h>
#include <algorithm>
#include <chrono>
#include <utility>

namespace ckpt {
namespace {

using Clock = std::chrono::steady_clock;
using format::Damaged;
using format::EntryType;
using ops::Destination;
using ops::PlanItem;
using ops::Shards;

void check_options(const RestoreOptions& options) {
  const int targets =
      int{!options.directory.empty()} + int{!options.output.empty()} + int{options.output_fd.has_value()};
  if (targets != 1) throw Error(Errc::invalid_argument, "a restore needs one destination");
  if (options.by_rank && options.directory.empty()) throw Error(Errc::invalid_argument, "by-rank needs a directory");
}

/// What is to be done for each item of the plan.
enum class Action { write, replace, keep, make };

[[noreturn]] void in_the_way(const std::string& path) {
  throw Error(Errc::exists, "'" + path + "' is there with other content").with_hint("use --force to replace it");
}

/// For files that are there: the same size is a candidate, the same bytes are kept.
std::vector<Action> choose_actions(const RestoreOptions& options, const Shards& shards,
                                   const std::vector<PlanItem>& plan, const Destination& destination,
                                   Monitor& monitor) {
  std::vector<Action> actions(plan.size(), Action::make);
  std::vector<std::size_t> candidates;
  const auto name = [&](std::size_t i) {
    return options.directory.empty() ? options.output : options.directory + "/" + plan[i].path;
  };
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const PlanItem& item = plan[i];
    const auto st = destination.status(item.path);
    if (item.is_file()) actions[i] = st ? Action::replace : Action::write;
    if (!st) continue;
    if (item.entry->type == EntryType::directory) {
      if (!S_ISDIR(st->st_mode)) throw Error(Errc::exists, "'" + name(i) + "' is in the way: it's not a directory");
      actions[i] = Action::keep;
    } else if (S_ISDIR(st->st_mode)) {
      throw Error(Errc::exists, "'" + name(i) + "' is in the way: it's a directory");
    } else if (!S_ISREG(st->st_mode) && !S_ISLNK(st->st_mode)) {
      throw Error(Errc::exists, "'" + name(i) + "' is in the way: it's a pipe, socket or device");
    } else if (item.entry->type == EntryType::symlink) {
      if (S_ISLNK(st->st_mode) && destination.read_link(item.path) == item.entry->target)
        actions[i] = Action::keep;
      else if (!options.force)
        in_the_way(name(i));
    } else if (item.is_file() && S_ISREG(st->st_mode) &&
               static_cast<std::uint64_t>(st->st_size) == item.content->size) {
      candidates.push_back(i);
    } else if (item.is_file() && !options.force) {
      in_the_way(name(i));
    } else if (item.entry->type == EntryType::hardlink && !item.is_file()) {
      const auto other =
          destination.status(item.path.substr(0, item.path.size() - item.entry->path.size()) + item.entry->target);
      const bool linked = other && other->st_ino == st->st_ino && other->st_dev == st->st_dev;
      if (linked)
        actions[i] = Action::keep;
      else if (!options.force)
        in_the_way(name(i));
    }
  }
  const std::vector<bool> same = ops::have_same_bytes(shards, plan, candidates, destination, options.jobs, monitor);
  for (std::size_t c = 0; c < candidates.size(); ++c) {
    if (same[c])
      actions[candidates[c]] = Action::keep;
    else if (!options.force)
      in_the_way(name(candidates[c]));
  }
  // A hard link to a file that is replaced has to be made again.
  for (std::size_t i = 0; i < plan.size(); ++i) {
    if (actions[i] != Action::keep || plan[i].entry->type != EntryType::hardlink || plan[i].is_file()) continue;
    const std::string target =
        plan[i].path.substr(0, plan[i].path.size() - plan[i].entry->path.size()) + plan[i].entry->target;
    const auto it = std::find_if(plan.begin(), plan.end(), [&](const PlanItem& p) { return p.path == target; });
    if (it != plan.end() && actions[static_cast<std::size_t>(it - plan.begin())] != Action::keep)
      actions[i] = Action::make;
  }
  return actions;
}

void require_space(const std::string& where, std::uint64_t needed) {
  const std::uint64_t available = os::free_space(where);
  if (needed <= available) return;
  throw Error(Errc::no_space, "'" + where + "' has room for " + std::to_string(available) + " bytes, and " +
                                  std::to_string(needed) + " are needed")
      .with_hint("free some space; nothing was written");
}

RestoreReport restore_files(const RestoreOptions& options, const Shards& shards, std::vector<PlanItem> plan,
                            Monitor& monitor) {
  std::string root = options.directory;
  if (root.empty()) {
    root = os::parent_of(options.output);
    plan.front().path = os::last_name_of(options.output);
    if (plan.front().path.empty()) throw Error(Errc::invalid_argument, "'" + options.output + "' names no file");
  }
  ops::require_outside(options.from.store, root);
  if (!os::exists(root)) os::make_directories(os::parent_of(root));
  Destination destination(root);
  const std::vector<Action> actions = choose_actions(options, shards, plan, destination, monitor);

  RestoreReport report;
  std::vector<ops::FileToWrite> files;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const PlanItem& item = plan[i];
    const bool counts = item.entry->type != EntryType::directory;
    if (actions[i] == Action::keep) report.unchanged += counts ? 1 : 0;
    if (actions[i] == Action::keep) continue;
    report.files += counts ? 1 : 0;
    if (!item.is_file()) continue;
    report.bytes += item.content->size;
    // Before an older file is replaced, the new one is on the disk; a file that wasn't there needs no such care.
    files.push_back({.item = &item, .sync = actions[i] == Action::replace});
  }
  require_space(os::exists(root) ? root : os::parent_of(root), report.bytes);

  for (std::size_t i = 0; i < plan.size(); ++i) {
    const PlanItem& item = plan[i];
    if (item.entry->type == EntryType::directory) destination.make_directory(item.path);
    if (actions[i] == Action::keep) continue;
    if (item.entry->type == EntryType::symlink) destination.add_symlink(item.path, item.entry->target);
    if (item.entry->type == EntryType::hardlink && !item.is_file()) {
      const std::string prefix = item.path.substr(0, item.path.size() - item.entry->path.size());
      destination.add_hardlink(item.path, prefix + item.entry->target);
    }
  }
  ops::write_files(shards, files, destination, options.jobs, monitor);
  destination.commit();
  // The deepest first: a directory's time changes with what is made in it.
  for (auto item = plan.rbegin(); item != plan.rend(); ++item) {
    if (item->entry->type == EntryType::hardlink && !item->is_file()) continue;
    destination.set_attributes(item->path, item->entry->mode, item->entry->mtime_ns);
  }
  return report;
}

/// A pipe or device is written to and not replaced.
os::Fd open_stream(const std::string& output) {
  const auto st = output.empty() ? std::nullopt : os::stat_path(output);
  if (!st || S_ISREG(st->st_mode) || S_ISDIR(st->st_mode)) return {};
  return os::open(output, O_WRONLY);
}

/// A file system where files without a name can be made, near where the restore goes.
std::string scratch_for(const RestoreOptions& options) {
  if (!options.directory.empty()) return os::existing_ancestor(options.directory);
  return options.output.empty() ? "." : os::parent_of(options.output);
}

/// What is damaged here comes from the replicas.
Shards open_with_replicas(const RestoreOptions& options, const store::Checkpoint& checkpoint,
                          const ops::ReplicaBlocks& replicas) {
  const std::uint32_t world_size = checkpoint.manifest.world_size;
  if (options.select.rank && *options.select.rank >= world_size)
    throw Error(Errc::not_found, "there is no rank " + std::to_string(*options.select.rank));
  Shards shards;
  for (std::uint32_t rank = 0; rank < world_size; ++rank) {
    if (!options.select.rank || *options.select.rank == rank)
      shards.push_back(replicas.open(checkpoint.manifest.identity(), rank));
  }
  return shards;
}

RestoreReport restore_checkpoint(const RestoreOptions& options, const store::Checkpoint& checkpoint, Monitor& monitor) {
  const ops::ReplicaBlocks replicas({.store = options.from.store,
                                     .replicas = options.replicas,
                                     .scratch = scratch_for(options),
                                     .peer = options.peer},
                                    monitor);
  const Shards shards = options.replicas.empty() ? ops::open_shards(checkpoint, options.select.rank)
                                                 : open_with_replicas(options, checkpoint, replicas);
  const std::vector<PlanItem> plan = ops::plan_restore(shards, options.select, options.by_rank);
  RestoreReport report;
  if (!options.directory.empty()) {
    report = restore_files(options, shards, plan, monitor);
  } else {
    const auto files = std::count_if(plan.begin(), plan.end(), [](const PlanItem& item) { return item.is_file(); });
    std::vector<PlanItem> one;
    std::copy_if(plan.begin(), plan.end(), std::back_inserter(one),
                 [](const PlanItem& item) { return item.is_file(); });
    if (files != 1) {
      throw Error(Errc::invalid_argument, "one file is needed, and " + std::to_string(files) + " match")
          .with_hint("choose one with --file and --rank");
    }
    const os::Fd stream = open_stream(options.output);
    const std::optional<int> output_fd = stream.valid() ? stream.get() : options.output_fd;
    if (output_fd) {
      // With a fallback nothing may be written before all of it is known to be good.
      if (options.fallback) ops::check_file(shards, one.front(), options.jobs, monitor);
      report.bytes = ops::stream_file(shards, one.front(), *output_fd, options.jobs, monitor);
      report.files = 1;
    } else {
      report = restore_files(options, shards, std::move(one), monitor);
    }
  }
  report.step = checkpoint.manifest.step;
  report.id = to_hex(checkpoint.manifest.id);
  for (const auto& [mark, reason] : checkpoint.manifest.marks) {
    if (mark == "derived_from") continue;  // says more of what "lossy" says
    monitor.warning("the checkpoint is marked " + mark + (reason.empty() ? "" : ": " + reason));
  }
  return report;
}

/// Where it can't be pinned it may be encoded anew meanwhile, and what it was stored against as well. What has gone
/// into a stream can't be taken back.
RestoreReport restore_unless_changed(const RestoreOptions& options, const store::Checkpoint& checkpoint,
                                     Monitor& monitor) {
  try {
    return restore_checkpoint(options, checkpoint, monitor);
  } catch (const Damaged&) {
    const auto now = ops::encoded_anew_since(checkpoint);
    if (!now || options.directory.empty()) throw;
    return restore_checkpoint(options, *now, monitor);
  }
}

/// Where a fallback goes on from: below the step that was asked for.
std::uint64_t step_asked_for(const store::Store& store, const Selector& selector) {
  if (selector.kind == Selector::Kind::step) return selector.step;
  if (selector.kind == Selector::Kind::id) return store.resolve(selector).manifest.step;
  const auto steps = store.steps();
  return steps.empty() ? 0 : steps.back() + 1;
}

/// The newest good one that works; each that's passed over is reported.
RestoreReport restore_older(const RestoreOptions& options, const store::Store& store, std::uint64_t below,
                            std::vector<RestoreReport::Skipped> skipped, const Damaged& first, Monitor& monitor) {
  const store::Verdicts verdicts = store::read_verdicts(store);
  std::vector<std::uint64_t> steps = store.steps();
  std::erase_if(steps, [&](std::uint64_t step) { return step >= below; });
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    try {
      const auto checkpoint = store.find(*step);
      if (!checkpoint || checkpoint->manifest.is_marked()) continue;
      const auto verdict = store::verdict_of(verdicts, *step, checkpoint->manifest.id);
      if (verdict == store::Verdict::damaged) {
        skipped.push_back({.step = *step, .reason = "a verify found damage"});
        continue;
      }
      const auto pin = store::Pin::try_to_hold(store, *checkpoint);
      RestoreReport report = restore_checkpoint(options, *checkpoint, monitor);
      report.skipped = std::move(skipped);
      return report;
    } catch (const Damaged& damage) {
      const bool known = !skipped.empty() && skipped.back().step == *step;
      if (!known) skipped.push_back({.step = *step, .reason = damage.what()});
    }
  }
  throw Damaged(first.kind(), first.begin(), first.end(),
                std::string(first.what()) + "; and there is no good older checkpoint");
}

/// The checkpoint that is asked for; where its manifest is damaged a replica's may do.
store::Checkpoint resolve(const RestoreOptions& options, const store::Store& store, Monitor& monitor) {
  try {
    return store.resolve(options.from.selector);
  } catch (const Damaged&) {
    const Selector& selector = options.from.selector;
    const bool is_newest =
        selector.kind == Selector::Kind::none || (selector.kind == Selector::Kind::latest && selector.back == 0);
    const auto steps = store.steps();
    if (options.replicas.empty() || steps.empty() || (!is_newest && selector.kind != Selector::Kind::step)) throw;
    const std::uint64_t step = is_newest ? steps.back() : selector.step;
    const ops::ReplicaBlocks replicas(
        {.store = store.path(), .replicas = options.replicas, .scratch = scratch_for(options), .peer = options.peer},
        monitor);
    auto manifest = replicas.manifest_of(step);
    if (!manifest || (is_newest && manifest->is_marked())) throw;
    monitor.warning("the manifest of '" + store.address(step) + "' is damaged; a replica's is taken");
    return {.directory = store.step_directory(step), .manifest = std::move(*manifest)};
  }
}

}  // namespace

RestoreReport restore(const RestoreOptions& options, Monitor& monitor) {
  check_options(options);
  const auto start = Clock::now();
  const store::Store store = store::Store::open(options.from.store);
  RestoreReport report;
  std::optional<std::uint64_t> step;
  try {
    const store::Checkpoint checkpoint = resolve(options, store, monitor);
    ops::require_allowed(checkpoint, options.allow_lossy);
    step = checkpoint.manifest.step;
    const auto pin = store::Pin::try_to_hold(store, checkpoint);
    report = restore_unless_changed(options, checkpoint, monitor);
  } catch (const Damaged& damage) {
    if (!options.fallback) {
      throw Damaged(damage).with_hint("ckpt-verify says what is damaged; --fallback takes the newest good checkpoint");
    }
    std::vector<RestoreReport::Skipped> skipped;
    const Selector& asked = options.from.selector;
    if (!step && asked.kind == Selector::Kind::step) step = asked.step;
    if (step) skipped.push_back({.step = *step, .reason = damage.what()});
    report = restore_older(options, store, step.value_or(step_asked_for(store, options.from.selector)),
                           std::move(skipped), damage, monitor);
  }
  report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return report;
}

}  // namespace ckpt
