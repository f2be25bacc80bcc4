// SPDX-License-Identifier: Apache-2.0
// One hash a file: the blocks are read, decoded and checked by workers, and hashed once more in the order of the file.
#include <ckpt/list.hpp>

#include "core/digest.hpp"
#include "ops/open_shard.hpp"
#include "ops/stored_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace ckpt {
namespace {

struct RankSum {
  std::uint32_t rank = 0;
  FileSum sum;
};

/// The sums of a shard's regular files and of the hard links to them, which are files, too, once they're restored.
void add_shard(const format::ContainerReader& container, std::uint32_t rank, unsigned jobs, Monitor& monitor,
               Progress& progress, std::vector<RankSum>& to) {
  const format::Catalog& catalog = container.catalog();
  std::unordered_map<std::string_view, std::string> by_path;
  std::vector<const format::FileEntry*> files;
  for (const format::FileEntry& file : catalog.files) {
    if (file.type != format::EntryType::file) continue;
    if (file.block_count == 0) by_path[file.path] = to_hex(Hasher().digest());
    if (file.block_count > 0) files.push_back(&file);
  }
  std::size_t at = 0;
  Hasher hasher;
  ops::stream_blocks(container, 0, catalog.block_sizes.size(), jobs, monitor, [&](std::uint64_t block, ByteView raw) {
    hasher.update(raw);
    progress.done += raw.size();
    monitor.progress(progress);
    const format::FileEntry& file = *files[at];
    if (block + 1 < file.first_block + file.block_count) return;
    by_path[file.path] = to_hex(hasher.digest());
    hasher = Hasher();
    ++at;
  });
  for (const format::FileEntry& file : catalog.files) {
    const bool is_link = file.type == format::EntryType::hardlink;
    if (file.type != format::EntryType::file && !is_link) continue;
    to.push_back({.rank = rank, .sum = {.path = file.path, .xxh128 = by_path.at(is_link ? file.target : file.path)}});
  }
}

bool have_conflict(const std::vector<RankSum>& sorted) {
  return std::adjacent_find(sorted.begin(), sorted.end(), [](const RankSum& a, const RankSum& b) {
           return a.sum.path == b.sum.path && a.sum.xxh128 != b.sum.xxh128;
         }) != sorted.end();
}

}  // namespace

std::vector<FileSum> file_sums(const Address& address, unsigned jobs, Monitor& monitor) {
  const store::Checkpoint checkpoint = store::Store::open(address.store).resolve(address.selector);
  Progress progress{.stage = "read"};
  progress.total += checkpoint.manifest.raw_bytes();
  std::vector<RankSum> found;
  for (std::size_t s = 0; s < checkpoint.manifest.shards.size(); ++s) {
    add_shard(*ops::open_shard(checkpoint, s), checkpoint.manifest.shards[s].rank, jobs, monitor, progress, found);
  }
  std::stable_sort(found.begin(), found.end(), [](const RankSum& a, const RankSum& b) {
    return std::pair(std::string_view(a.sum.path), a.rank) < std::pair(std::string_view(b.sum.path), b.rank);
  });
  const bool by_rank = have_conflict(found);
  std::vector<FileSum> sums;
  for (RankSum& each : found) {
    // Shards that hold one path with different content can only be restored by rank: then the sums are for that.
    if (by_rank) each.sum.path = fmt::format("rank-{:05}/{}", each.rank, each.sum.path);
    if (!sums.empty() && sums.back().path == each.sum.path) continue;
    sums.push_back(std::move(each.sum));
  }
  if (by_rank) {
    std::sort(sums.begin(), sums.end(), [](const FileSum& a, const FileSum& b) { return a.path < b.path; });
  }
  return sums;
}

}  // namespace ckpt
