// SPDX-License-Identifier: Apache-2.0
#include "ops/restore_plan.hpp"

#include "core/patterns.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <map>

namespace ckpt::ops {
namespace {

using format::EntryType;
using format::FileEntry;

const FileEntry* find_entry(const format::Catalog& catalog, const std::string& path) {
  const auto it = std::lower_bound(catalog.files.begin(), catalog.files.end(), path,
                                   [](const FileEntry& file, const std::string& p) { return file.path < p; });
  return it != catalog.files.end() && it->path == path ? &*it : nullptr;
}

bool same_bytes(const Shards& shards, const PlanItem& a, const PlanItem& b) {
  if (a.is_file() != b.is_file()) return false;
  if (!a.is_file()) return true;
  if (a.content->size != b.content->size || a.content->block_count != b.content->block_count) return false;
  const auto& blocks_a = shards[a.shard]->index().blocks;
  const auto& blocks_b = shards[b.shard]->index().blocks;
  for (std::uint64_t i = 0; i < a.content->block_count; ++i) {
    const auto& x = blocks_a[a.content->first_block + i];
    const auto& y = blocks_b[b.content->first_block + i];
    if (x.raw_size != y.raw_size || x.hash != y.hash) return false;
  }
  return true;
}

/// Directories merge whatever their modes; everything else must be the same in every shard.
void require_same(const Shards& shards, const PlanItem& a, const PlanItem& b) {
  const bool directories = a.entry->type == EntryType::directory && b.entry->type == EntryType::directory;
  const bool same =
      a.entry->type == b.entry->type && a.entry->mode == b.entry->mode && a.entry->target == b.entry->target;
  if (directories || (same && same_bytes(shards, a, b))) return;
  throw Error(Errc::exists, "ranks " + std::to_string(shards[a.shard]->catalog().shard.rank) + " and " +
                                std::to_string(shards[b.shard]->catalog().shard.rank) + " hold different '" + a.path +
                                "'")
      .with_hint("use --by-rank to keep them apart, or --rank to restore one");
}

/// In one shard nothing lies below a file; merged shards can disagree.
void require_tree(const std::map<std::string, PlanItem>& items) {
  for (const auto& [path, item] : items) {
    for (std::size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
      const auto above = items.find(path.substr(0, slash));
      if (above == items.end() || above->second.entry->type == EntryType::directory) continue;
      throw Error(Errc::exists, "'" + above->first + "' is a file in one shard and a directory in another")
          .with_hint("use --by-rank to keep them apart, or --rank to restore one");
    }
  }
}

}  // namespace

std::vector<PlanItem> plan_restore(const Shards& shards, const Selection& select, bool by_rank) {
  std::map<std::string, PlanItem> items;
  PatternList patterns(select.files);
  for (const auto& shard : shards) {
    for (const FileEntry& entry : shard->catalog().files) patterns.learn(entry.path);
  }
  for (std::size_t s = 0; s < shards.size(); ++s) {
    const format::Catalog& catalog = shards[s]->catalog();
    const std::string prefix = by_rank ? fmt::format("rank-{:05}/", catalog.shard.rank) : std::string();
    for (const FileEntry& entry : catalog.files) {
      if (!patterns.matches(entry.path)) continue;
      PlanItem item{.path = prefix + entry.path, .shard = s, .entry = &entry, .content = nullptr};
      if (entry.type == EntryType::file) item.content = &entry;
      if (entry.type == EntryType::hardlink && !patterns.matches(entry.target)) {
        item.content = find_entry(catalog, entry.target);
      }
      const auto [known, is_new] = items.emplace(item.path, item);
      if (!is_new) require_same(shards, known->second, item);
    }
  }
  if (const std::string* pattern = patterns.unmatched()) {
    throw Error(Errc::not_found, "no file matches '" + *pattern + "'");
  }
  require_tree(items);
  std::vector<PlanItem> plan;
  for (auto& [path, item] : items) plan.push_back(std::move(item));
  return plan;
}

}  // namespace ckpt::ops
