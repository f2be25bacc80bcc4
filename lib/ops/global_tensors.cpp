// SPDX-License-Identifier: Apache-2.0
#include "ops/global_tensors.hpp"

#include "core/patterns.hpp"
#include "core/pipeline.hpp"
#include "core/stop.hpp"
#include "format/damaged.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <utility>

namespace ckpt::ops {
namespace {

/// Below this, starting threads costs more than it gains.
constexpr std::uint64_t parallel_box_from = 4U << 20U;

[[noreturn]] void refuse(Errc code, const GlobalTensor& tensor, const std::string& why) {
  throw Error(code, "tensor '" + tensor.name + "' " + why);
}

bool has_no_elements(const Box& box) { return volume_of(box) == 0; }

/// Larger strides step over all that the smaller ones reach, so that no two elements share a place.
bool keeps_apart(const Box& box, std::span<const std::int64_t> strides, std::uint64_t width) {
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;  // stride and size
  for (std::size_t d = 0; d < strides.size(); ++d) {
    if (strides[d] < 0) return false;
    if (box.shape[d] != 1) dims.emplace_back(strides[d], box.shape[d]);
  }
  std::sort(dims.begin(), dims.end());
  std::uint64_t reach = 0;
  for (const auto& [stride, size] : dims) {
    if (static_cast<std::uint64_t>(stride) <= reach) return false;
    const auto length = checked_mul(static_cast<std::uint64_t>(stride), static_cast<std::uint64_t>(size - 1));
    const auto next = length ? checked_add(reach, *length) : std::nullopt;
    if (!next || !checked_mul(*next, width)) return false;
    reach = *next;
  }
  return true;
}

void check_target(const GlobalTensor& tensor, const Box& box, std::span<const std::int64_t> strides) {
  if (!lies_inside(box, tensor.shape)) {
    refuse(Errc::invalid_argument, tensor,
           "has no elements " + to_string(box) + ": it has " + to_string(whole_of(tensor.shape)));
  }
  const unsigned bits = bits_of(tensor.dtype);
  if (strides.size() != box.shape.size() ||
      (!has_no_elements(box) && !keeps_apart(box, strides, std::max(1U, bits / 8)))) {
    refuse(Errc::invalid_argument, tensor, "can't be read to a place with such strides");
  }
  if (bits % 8 == 0 || has_no_elements(box)) return;
  const Tensor target{.dtype = tensor.dtype, .shape = box.shape, .strides = {strides.begin(), strides.end()}};
  if (box.shape != tensor.shape || !is_contiguous(target)) {
    refuse(Errc::unsupported, tensor, "of " + std::to_string(bits) + "-bit elements can only be read as a whole");
  }
}

}  // namespace

GlobalTensors::GlobalTensors(store::Checkpoint checkpoint, const Selection& select, const Monitor& monitor)
    : checkpoint_(std::move(checkpoint)), cache_(checkpoint_) {
  PatternList files(select.files);
  const auto visit = [&](const auto& look) {
    bool any = false;
    for (std::size_t s = 0; s < checkpoint_.manifest.shards.size(); ++s) {
      const std::uint32_t rank = checkpoint_.manifest.shards[s].rank;
      if (select.rank && *select.rank != rank) continue;
      require_no_stop(monitor);
      any = true;
      look(s, rank, cache_.container(s)->catalog());
    }
    return any;
  };
  if (files.has_wildcards()) {
    visit([&](std::size_t, std::uint32_t, const format::Catalog& catalog) {
      for (const format::FileEntry& file : catalog.files) files.learn(file.path);
    });
  }
  GlobalIndex index;
  const bool any = visit([&](std::size_t s, std::uint32_t rank, const format::Catalog& catalog) {
    index.add(s, rank, catalog, [&](const std::string& path) { return files.matches(path); });
  });
  if (!any) {
    throw Error(Errc::not_found, "'" + checkpoint_.directory + "' has no rank " +
                                     std::to_string(select.rank.value_or(0)) + ": its world size is " +
                                     std::to_string(checkpoint_.manifest.world_size));
  }
  if (const std::string* pattern = files.unmatched()) {
    throw Error(Errc::not_found, "no file matches '" + *pattern + "'");
  }
  wholes_ = std::move(index).finish();
  for (std::size_t i = 0; i < wholes_.size(); ++i) by_name_.emplace(wholes_[i].name, i);
}

const GlobalTensor& GlobalTensors::find(std::string_view name) const {
  const auto [first, last] = by_name_.equal_range(name);
  if (first == last) {
    throw Error(Errc::not_found, "'" + checkpoint_.directory + "' has no tensor '" + std::string(name) + "'");
  }
  if (std::next(first) == last) return wholes_[first->second];
  std::string files;
  for (auto i = first; i != last; ++i) files += (i == first ? "'" : ", '") + wholes_[i->second].path + "'";
  throw Error(Errc::invalid_argument,
              "the name '" + std::string(name) + "' stands for several tensors: those of " + files);
}

std::string GlobalTensors::origin(const TensorPart& part) const {
  const auto file = cache_.container(part.file.shard);
  return "rank " + std::to_string(checkpoint_.manifest.shards[part.file.shard].rank) + " ('" +
         file->catalog().files[part.file.file].path + "')";
}

std::vector<GlobalTensors::Piece> GlobalTensors::pieces_of(const GlobalTensor& tensor, const Box& box) const {
  if (!tensor.problem.empty()) refuse(Errc::damaged, tensor, tensor.problem);
  std::vector<Piece> pieces;
  std::uint64_t found = 0;
  std::vector<Box> boxes;
  for (std::size_t i = 0; i < tensor.parts.size();) {
    std::size_t end = i + 1;
    while (end < tensor.parts.size() && tensor.parts[end].box == tensor.parts[i].box) ++end;
    if (auto both = intersection_of(tensor.parts[i].box, box)) {
      boxes.push_back(*both);
      found += volume_of(*both);
      pieces.push_back({.replicas = std::span(tensor.parts).subspan(i, end - i), .box = std::move(*both)});
    }
    i = end;
  }
  if (const auto overlap = find_overlap(boxes)) {
    const TensorPart& a = pieces[overlap->first].replicas.front();
    const TensorPart& b = pieces[overlap->second].replicas.front();
    refuse(Errc::damaged, tensor,
           "has parts that overlap and aren't the same: " + to_string(a.box) + " of " + origin(a) + " and " +
               to_string(b.box) + " of " + origin(b));
  }
  if (found == volume_of(box)) return pieces;
  if (tensor.parts.empty()) {
    const bool plain = tensor.layout == Layout::strided || tensor.layout == Layout::quantized;
    refuse(
        Errc::unsupported, tensor,
        plain ? "has no bytes in any shard: it was on the meta device" : "is " + std::string(name_of(tensor.layout)));
  }
  const auto gap = find_gap(box, boxes);
  refuse(Errc::damaged, tensor,
         "has a gap: no shard holds " + to_string(gap.value_or(box)) + " of " + to_string(whole_of(tensor.shape)));
}

void GlobalTensors::require_agreement(const GlobalTensor& tensor, const Piece& piece, const Monitor& monitor) const {
  const TensorPart& first = piece.replicas.front();
  const FileView taken = view_on(first, piece.box);
  for (const TensorPart& other : piece.replicas.subspan(1)) {
    if (have_same_values(cache_, taken, view_on(other, piece.box), monitor)) continue;
    throw Error(Errc::damaged, "tensor '" + tensor.name + "' differs in " + to_string(piece.box) + " between " +
                                   origin(first) + " and " + origin(other))
        .with_hint("choose one with --rank or --file");
  }
}

void GlobalTensors::plan_piece(const Piece& piece, const TensorPart& from, const Target& to, const Monitor& monitor,
                               Tasks& tasks) const {
  std::uint64_t before = 0;  // elements of the target
  for (std::size_t d = 0; d < to.strides.size(); ++d) {
    before += static_cast<std::uint64_t>((piece.box.offsets[d] - to.box.offsets[d]) * to.strides[d]);
  }
  std::byte* const into = to.into + before * bits_of(from.view.dtype) / 8;
  plan_read(cache_, view_on(from, piece.box), to.strides, into, monitor, tasks);
}

void GlobalTensors::read_from_any(const Piece& piece, const Target& to, const Monitor& monitor) const {
  for (const TensorPart& from : piece.replicas) {
    try {
      Tasks tasks;
      plan_piece(piece, from, to, monitor, tasks);
      for (const auto& task : tasks) task();
      return;
    } catch (const format::Damaged&) {
      if (&from == &piece.replicas.back()) throw;
    }
  }
}

void GlobalTensors::read(const GlobalTensor& tensor, const Box& box, std::span<const std::int64_t> strides,
                         std::byte* into, unsigned jobs, const Monitor& monitor) const {
  check_target(tensor, box, strides);
  const std::vector<Piece> pieces = pieces_of(tensor, box);
  const Target target{.box = box, .strides = strides, .into = into};
  const bool alone = jobs == 1 || volume_of(box) < parallel_box_from * 8 / bits_of(tensor.dtype);
  try {
    Tasks tasks;
    for (const Piece& piece : pieces) {
      if (piece.replicas.size() > 1) {
        tasks.emplace_back([this, &tensor, &piece, &monitor] { require_agreement(tensor, piece, monitor); });
      }
      plan_piece(piece, piece.replicas.front(), target, monitor, tasks);
    }
    run_parallel(tasks.size(), alone ? 1 : reader_count(jobs), [&](std::size_t i) { tasks[i](); });
    return;
  } catch (const format::Damaged&) {
    const auto has_others = [](const Piece& piece) { return piece.replicas.size() > 1; };
    if (std::none_of(pieces.begin(), pieces.end(), has_others)) throw;
  }
  run_parallel(pieces.size(), alone ? 1 : reader_count(jobs),
               [&](std::size_t i) { read_from_any(pieces[i], target, monitor); });
}

}  // namespace ckpt::ops
