// SPDX-License-Identifier: Apache-2.0
// Blocks that are wanted as a whole go from the decoder to their place; the rest, and views that jump about in their
// file, come through the cache.
#include "ops/part_reader.hpp"

#include "core/digest.hpp"
#include "core/stop.hpp"
#include "ops/block_runs.hpp"
#include "ops/strided_gather.hpp"
#include "ops/strided_scatter.hpp"
#include "ops/value_signs.hpp"

#include <algorithm>
#include <array>
#include <memory>

namespace ckpt::ops {
namespace {

/// A view that isn't contiguous is cut into tasks of about so many bytes.
constexpr std::uint64_t task_bytes = 16U << 20U;

bool shows_what_is_stored(const Tensor& tensor) {
  return is_contiguous(tensor) && !tensor.conjugate && !tensor.negative;
}

void read_cached(CachedBytes& bytes, std::uint64_t begin, std::uint64_t end, std::uint64_t origin,
                 const StridedScatter& into) {
  while (begin < end) {
    const ByteView there = bytes.at(begin);
    const ByteView piece = there.first(static_cast<std::size_t>(std::min<std::uint64_t>(there.size(), end - begin)));
    into.put(begin - origin, piece);
    begin += piece.size();
  }
}

/// The bytes [begin, end) of a file, which are the elements in order.
void plan_contiguous(BlockCache& cache, FileOfShard which, std::uint64_t begin, std::uint64_t end,
                     const StridedScatter& into, const Monitor& monitor, Tasks& tasks) {
  const auto file = cache.file(which);
  const StoredFile::Place first = file->place_of(begin);
  const StoredFile::Place last = file->place_of(end - 1);
  const std::uint64_t first_inside = first.begin == begin ? first.block : first.block + 1;
  const std::uint64_t after_inside = last.end == end ? last.block + 1 : last.block;
  const auto edge = [&](const StoredFile::Place& place) {
    const std::uint64_t from = std::max(place.begin, begin);
    const std::uint64_t to = std::min(place.end, end);
    tasks.emplace_back([&cache, which, from, to, begin, into, &monitor] {
      require_no_stop(monitor);
      CachedBytes bytes(cache, which);
      read_cached(bytes, from, to, begin, into);
    });
  };
  if (first_inside != first.block) edge(first);
  if (after_inside == last.block && (last.block != first.block || first_inside == first.block)) edge(last);
  if (first_inside >= after_inside) return;
  std::uint64_t at = first_inside == first.block ? first.begin : first.end;
  for (const BlockRun& run : plan_runs(file->container(), first_inside, after_inside - first_inside)) {
    tasks.emplace_back([&cache, file, run, at, begin, into, &monitor] {
      require_no_stop(monitor);
      auto reader = cache.readers().take();
      reader->open(file->container(), run);
      std::uint64_t to = at;
      for (std::uint64_t b = run.first; b < run.first + run.count; ++b) {
        const ByteView raw = reader->decode(b);
        into.put(to - begin, raw);
        to += raw.size();
      }
    });
    for (std::uint64_t b = run.first; b < run.first + run.count; ++b) at += file->container().catalog().block_sizes[b];
  }
}

/// Gives the values in row-major order, in pieces of whole elements.
void read_in_order(BlockCache& cache, const FileView& view, const Monitor& monitor,
                   const std::function<void(ByteView)>& consume) {
  CachedBytes bytes(cache, view.file);
  Bytes scratch;
  gather_strided(bytes, view.tensor, monitor,
                 [&](ByteView elements) { consume(resolve_signs(view.tensor, elements, scratch)); });
}

/// The dimension along which cutting leaves pieces that lie apart in the file.
std::size_t dimension_to_cut(const Tensor& tensor) {
  std::size_t best = 0;
  for (std::size_t d = 1; d < tensor.shape.size(); ++d) {
    if (tensor.shape[d] > 1 && (tensor.shape[best] == 1 || tensor.strides[d] > tensor.strides[best])) best = d;
  }
  return best;
}

void plan_gather(BlockCache& cache, const FileView& view, std::span<const std::int64_t> strides, std::byte* into,
                 const Monitor& monitor, Tasks& tasks) {
  const Tensor& tensor = view.tensor;
  const std::uint64_t width = bits_of(tensor.dtype) / 8;
  const auto plan = [&](FileView part, std::byte* to) {
    const StridedScatter scatter(part.tensor.shape, strides, width, to);
    tasks.emplace_back([&cache, part = std::move(part), scatter, &monitor] {
      std::uint64_t at = 0;
      read_in_order(cache, part, monitor, [&](ByteView values) {
        scatter.put(at, values);
        at += values.size();
      });
    });
  };
  const std::uint64_t size = contiguous_bytes(tensor).value_or(0);
  if (tensor.shape.empty() || size <= task_bytes) return plan(view, into);
  const std::size_t d = dimension_to_cut(tensor);
  const std::int64_t length = tensor.shape[d];
  const std::uint64_t row = size / static_cast<std::uint64_t>(length);
  const auto step = static_cast<std::int64_t>(std::max<std::uint64_t>(1, task_bytes / row));
  for (std::int64_t at = 0; at < length; at += step) {
    FileView part = view;
    part.tensor.shape[d] = std::min(step, length - at);
    part.tensor.offset += static_cast<std::uint64_t>(at * tensor.strides[d]) * width;
    plan(std::move(part), into + static_cast<std::uint64_t>(at * strides[d]) * width);
  }
}

/// Both views are contiguous and show what is stored.
bool have_same_bytes(BlockCache& cache, const FileView& a, const FileView& b, const Monitor& monitor) {
  CachedBytes bytes_a(cache, a.file);
  CachedBytes bytes_b(cache, b.file);
  const auto hash_of = [](const StoredFile& file, const StoredFile::Place& place) {
    return file.container().index().blocks[place.block].hash;
  };
  std::uint64_t at_a = a.tensor.offset;
  std::uint64_t at_b = b.tensor.offset;
  for (std::uint64_t left = contiguous_bytes(a.tensor).value_or(0); left > 0;) {
    require_no_stop(monitor);
    const StoredFile::Place x = bytes_a.file().place_of(at_a);
    const StoredFile::Place y = bytes_b.file().place_of(at_b);
    const std::uint64_t size = std::min({x.end - at_a, y.end - at_b, left});
    const bool cut_alike = at_a - x.begin == at_b - y.begin && x.end - x.begin == y.end - y.begin;
    if (!cut_alike || hash_of(bytes_a.file(), x) != hash_of(bytes_b.file(), y)) {
      const ByteView there_a = bytes_a.at(at_a).first(size);
      if (!std::equal(there_a.begin(), there_a.end(), bytes_b.at(at_b).begin())) return false;
    }
    at_a += size;
    at_b += size;
    left -= size;
  }
  return true;
}

}  // namespace

FileView view_on(const TensorPart& part, const Box& box) {
  FileView view{.file = part.file, .tensor = part.view};
  view.tensor.shape = box.shape;
  const std::uint64_t bits = bits_of(part.view.dtype);
  for (std::size_t d = 0; d < box.shape.size(); ++d) {
    const auto skipped = static_cast<std::uint64_t>((box.offsets[d] - part.box.offsets[d]) * part.view.strides[d]);
    view.tensor.offset += skipped * bits / 8;
  }
  return view;
}

void plan_read(BlockCache& cache, const FileView& view, std::span<const std::int64_t> strides, std::byte* into,
               const Monitor& monitor, Tasks& tasks) {
  const std::uint64_t size = contiguous_bytes(view.tensor).value_or(0);
  if (size == 0) return;
  if (!shows_what_is_stored(view.tensor)) return plan_gather(cache, view, strides, into, monitor, tasks);
  const bool whole_bytes = bits_of(view.tensor.dtype) % 8 == 0;
  const std::array<std::int64_t, 1> bytes = {static_cast<std::int64_t>(size)};
  const std::array<std::int64_t, 1> one = {1};
  const StridedScatter scatter = whole_bytes
                                     ? StridedScatter(view.tensor.shape, strides, bits_of(view.tensor.dtype) / 8, into)
                                     : StridedScatter(bytes, one, 1, into);
  plan_contiguous(cache, view.file, view.tensor.offset, view.tensor.offset + size, scatter, monitor, tasks);
}

bool have_same_values(BlockCache& cache, const FileView& a, const FileView& b, const Monitor& monitor) {
  if (shows_what_is_stored(a.tensor) && shows_what_is_stored(b.tensor)) {
    return have_same_bytes(cache, a, b, monitor);
  }
  const auto digest_of = [&](const FileView& view) {
    Hasher hasher;
    read_in_order(cache, view, monitor, [&](ByteView values) { hasher.update(values); });
    return hasher.digest();
  };
  return digest_of(a) == digest_of(b);
}

}  // namespace ckpt::ops
