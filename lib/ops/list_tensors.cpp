// SPDX-License-Identifier: Apache-2.0
// Lists tensors from the catalogs alone; with statistics, the blocks are read as well. Neighbours in a file are taken
// together, since small tensors share blocks, and the shares are the same for any number of workers.
#include <ckpt/list.hpp>

#include "core/patterns.hpp"
#include "core/pipeline.hpp"
#include "ops/open_shard.hpp"
#include "ops/strided_gather.hpp"
#include "ops/tensor_reader.hpp"
#include "ops/tensor_stats.hpp"
#include "ops/value_signs.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

namespace ckpt {
namespace {

/// A multiple of every group of elements and of the size of a block.
constexpr std::uint64_t share_size = 24U << 20U;
constexpr std::size_t blocks_a_worker = 2;

/// One listed tensor of the shard at hand, in a form that has the same statistics and is easier to read.
struct Row {
  TensorListing* listing = nullptr;
  Tensor simple;
  std::uint64_t repeats = 1;
  const ops::StoredFile* file = nullptr;
  ops::StatsAccumulator stats;
};

/// Bytes of a tensor that lie in one piece.
struct Part {
  std::size_t row = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t elements = 0;
};

/// Without the dimensions that repeat elements, and the others in the order of the addresses.
void simplify(Row& row) {
  Tensor& tensor = row.simple;
  if (element_count(tensor).value_or(0) == 0) return;
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;  // stride, size
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    if (tensor.shape[i] == 1) continue;
    if (tensor.strides[i] == 0) {
      row.repeats *= static_cast<std::uint64_t>(tensor.shape[i]);
    } else {
      dims.emplace_back(tensor.strides[i], tensor.shape[i]);
    }
  }
  std::stable_sort(dims.begin(), dims.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  tensor.shape.clear();
  tensor.strides.clear();
  for (const auto& [stride, size] : dims) {
    tensor.strides.push_back(stride);
    tensor.shape.push_back(size);
  }
}

void add_elements(Row& row, ByteView bytes, std::uint64_t& left, ops::StatsAccumulator& to) {
  const std::uint64_t there = bytes.size() * 8 / bits_of(row.simple.dtype);
  const std::uint64_t count = std::min(there, left);
  to.add(row.simple.dtype, bytes, count);
  left -= count;
}

std::vector<Part> parts_of(const std::vector<Row>& rows) {
  std::vector<Part> parts;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const Tensor& tensor = rows[r].simple;
    if (!is_contiguous(tensor)) continue;
    const std::uint64_t end = tensor.offset + contiguous_bytes(tensor).value_or(0);
    std::uint64_t elements = element_count(tensor).value_or(0);
    for (std::uint64_t at = tensor.offset; at < end; at += share_size) {
      const std::uint64_t stop = std::min(at + share_size, end);
      const std::uint64_t count = std::min(elements, (stop - at) * 8 / bits_of(tensor.dtype));
      parts.push_back({.row = r, .begin = at, .end = stop, .elements = count});
      elements -= count;
    }
  }
  std::stable_sort(parts.begin(), parts.end(), [&](const Part& a, const Part& b) {
    return std::pair(rows[a.row].file, a.begin) < std::pair(rows[b.row].file, b.begin);
  });
  return parts;
}

/// [first, last) of the parts that one worker takes at a time.
std::vector<std::pair<std::size_t, std::size_t>> shares_of(const std::vector<Part>& parts) {
  std::vector<std::pair<std::size_t, std::size_t>> shares;
  std::uint64_t size = share_size;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const std::uint64_t own = parts[p].end - parts[p].begin;
    if (size + own > share_size) {
      shares.emplace_back(p, p);
      size = 0;
    }
    size += own;
    shares.back().second = p + 1;
  }
  return shares;
}

ops::StatsAccumulator read_part(Row& row, const Part& part, ops::BlockCursor& cursor) {
  ops::StatsAccumulator stats;
  Bytes scratch;
  std::uint64_t left = part.elements;
  ops::WholeGroups groups(ops::bytes_per_group(row.simple.dtype), [&](ByteView elements) {
    add_elements(row, ops::resolve_signs(row.simple, elements, scratch), left, stats);
  });
  for (std::uint64_t at = part.begin; at < part.end;) {
    const ByteView there = cursor.at(at);
    const ByteView piece = there.first(static_cast<std::size_t>(std::min<std::uint64_t>(there.size(), part.end - at)));
    groups.put(piece);
    at += piece.size();
  }
  groups.finish();
  return stats;
}

struct Totals {
  std::uint64_t done = 0;
  std::uint64_t all = 0;
};

void read_contiguous(std::vector<Row>& rows, unsigned jobs, Monitor& monitor, Totals& totals) {
  const std::vector<Part> parts = parts_of(rows);
  const auto shares = shares_of(parts);
  const unsigned workers = worker_count(jobs);
  run_ordered(
      shares.size(), workers, std::size_t{workers} + 2,
      [&](std::size_t s) {
        std::vector<ops::StatsAccumulator> found;
        std::optional<ops::BlockCursor> cursor;
        for (std::size_t p = shares[s].first; p < shares[s].second; ++p) {
          require_no_stop(monitor);
          Row& row = rows[parts[p].row];
          if (!cursor || &cursor->file() != row.file) cursor.emplace(*row.file, blocks_a_worker);
          found.push_back(read_part(row, parts[p], *cursor));
        }
        return found;
      },
      [&](std::size_t s, const std::vector<ops::StatsAccumulator>& found) {
        for (std::size_t i = 0; i < found.size(); ++i) {
          const Part& part = parts[shares[s].first + i];
          rows[part.row].stats.merge(found[i]);
          totals.done += part.end - part.begin;
        }
        monitor.progress({.stage = "read", .done = totals.done, .total = totals.all});
      });
}

void read_strided(std::vector<Row>& rows, Monitor& monitor, Totals& totals) {
  for (Row& row : rows) {
    if (is_contiguous(row.simple)) continue;
    ops::BlockCursor cursor(*row.file, ops::gather_blocks);
    std::uint64_t left = element_count(row.simple).value_or(0);
    ops::read_tensor(cursor, row.simple, 1, monitor, [&](ByteView elements) {
      add_elements(row, elements, left, row.stats);
      totals.done += elements.size();
      monitor.progress({.stage = "read", .done = totals.done, .total = totals.all});
    });
  }
}

/// Fills in the statistics of the listings of one shard; `tensors` are theirs.
void add_stats(const std::shared_ptr<const format::ContainerReader>& container, std::deque<TensorListing>& listings,
               std::size_t first, const std::vector<std::pair<std::size_t, const Tensor*>>& tensors, unsigned jobs,
               Monitor& monitor, Totals& totals) {
  std::deque<ops::StoredFile> files;
  std::optional<std::size_t> current;
  std::vector<Row> rows;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& [file, tensor] = tensors[i];
    if (!tensor->has_bytes || !ops::is_numeric(tensor->dtype)) continue;
    if (current != file) files.emplace_back(container, container->catalog().files[file]);
    current = file;
    Row row{.listing = &listings[first + i], .simple = *tensor, .repeats = 1, .file = &files.back(), .stats = {}};
    simplify(row);
    totals.all += contiguous_bytes(row.simple).value_or(0);
    rows.push_back(std::move(row));
  }
  read_contiguous(rows, jobs, monitor, totals);
  read_strided(rows, monitor, totals);
  for (const Row& row : rows) row.listing->stats = row.stats.result(row.repeats);
}

TensorListing listing_of(const format::FileEntry& file, const Tensor& tensor, std::uint32_t rank) {
  return {.rank = rank,
          .file = file.path,
          .name = tensor.name,
          .dtype = std::string(name_of(tensor.dtype)),
          .layout = std::string(name_of(tensor.layout)),
          .shape = tensor.shape,
          .global_shape = tensor.global_shape,
          .global_offsets = tensor.global_offsets,
          .bytes = tensor.has_bytes ? contiguous_bytes(tensor).value_or(0) : 0,
          .meta = !tensor.has_bytes,
          .stats = std::nullopt};
}

}  // namespace

std::vector<TensorListing> list_tensors(const TensorQuery& query, Monitor& monitor) {
  const store::Checkpoint checkpoint = store::Store::open(query.from.store).resolve(query.from.selector);
  std::deque<TensorListing> listings;
  PatternList patterns(query.tensors);
  Totals totals;
  if (patterns.has_wildcards()) {
    for (std::size_t s = 0; s < checkpoint.manifest.shards.size(); ++s) {
      for (const Tensor& tensor : ops::open_shard(checkpoint, s)->catalog().tensors) patterns.learn(tensor.name);
    }
  }
  for (std::size_t s = 0; s < checkpoint.manifest.shards.size(); ++s) {
    require_no_stop(monitor);
    const auto container = ops::open_shard(checkpoint, s);
    const format::Catalog& catalog = container->catalog();
    const std::size_t first = listings.size();
    std::vector<std::pair<std::size_t, const Tensor*>> tensors;
    for (std::size_t f = 0; f < catalog.files.size(); ++f) {
      const format::FileEntry& file = catalog.files[f];
      for (std::uint64_t t = file.first_tensor; t < file.first_tensor + file.tensor_count; ++t) {
        const Tensor& tensor = catalog.tensors[t];
        if (!patterns.matches(tensor.name)) continue;
        listings.push_back(listing_of(file, tensor, checkpoint.manifest.shards[s].rank));
        tensors.emplace_back(f, &tensor);
      }
    }
    if (query.stats) add_stats(container, listings, first, tensors, query.jobs, monitor, totals);
  }
  if (const std::string* pattern = patterns.unmatched()) {
    throw Error(Errc::not_found, "no tensor matches '" + *pattern + "'");
  }
  return {std::make_move_iterator(listings.begin()), std::make_move_iterator(listings.end())};
}

}  // namespace ckpt
