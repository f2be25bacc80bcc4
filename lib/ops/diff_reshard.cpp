// SPDX-License-Identifier: Apache-2.0
#include "ops/diff_reshard.hpp"

#include "ops/box.hpp"
#include "ops/diff_numbers.hpp"
#include "ops/global_index.hpp"
#include "ops/part_reader.hpp"
#include "ops/path_numbers.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

namespace ckpt::ops {
namespace {

/// One side's tensors as wholes.
struct SideWholes {
  std::vector<GlobalTensor> tensors;
  std::vector<std::vector<std::size_t>> of;  ///< by file and tensor: which of them it's a part of
};

SideWholes wholes_of(const std::vector<SideFile>& files) {
  SideWholes wholes;
  GlobalIndex index;
  for (std::size_t f = 0; f < files.size(); ++f) {
    const SideFile& file = files[f];
    wholes.of.push_back(index.add_file({.shard = file.rank, .file = f}, file.rank, file.path, file.tensors));
  }
  wholes.tensors = std::move(index).finish();
  return wholes;
}

bool has_parts(const std::vector<SideFile>& files) {
  return std::any_of(files.begin(), files.end(), [](const SideFile& file) {
    return std::any_of(file.tensors.begin(), file.tensors.end(),
                       [](const Tensor& tensor) { return !tensor.global_shape.empty(); });
  });
}

/// For each of a's wholes the one of b that it's compared with.
std::vector<std::optional<std::size_t>> partners_of(const SideWholes& a, const SideWholes& b) {
  std::map<std::pair<std::string, std::string_view>, std::size_t> by_key;
  std::map<std::string_view, std::vector<std::size_t>> by_name;
  for (std::size_t i = 0; i < b.tensors.size(); ++i) {
    by_key.try_emplace({without_numbers(b.tensors[i].path), b.tensors[i].name}, i);
    by_name[b.tensors[i].name].push_back(i);
  }
  std::map<std::string_view, std::size_t> count_in_a;
  for (const GlobalTensor& tensor : a.tensors) ++count_in_a[tensor.name];

  std::vector<std::optional<std::size_t>> partners;
  for (const GlobalTensor& tensor : a.tensors) {
    std::optional<std::size_t> partner;
    const auto of_path = by_key.find({without_numbers(tensor.path), tensor.name});
    const auto of_name = by_name.find(tensor.name);
    if (of_path != by_key.end()) {
      partner = of_path->second;
    } else if (of_name != by_name.end() && of_name->second.size() == 1 && count_in_a[tensor.name] == 1) {
      partner = of_name->second.front();
    }
    partners.push_back(partner);
  }
  return partners;
}

/// The first of each box's replicas, in the order of their boxes.
std::vector<const TensorPart*> without_replicas(const GlobalTensor& tensor) {
  std::vector<const TensorPart*> parts;
  for (const TensorPart& part : tensor.parts) {
    if (parts.empty() || parts.back()->box != part.box) parts.push_back(&part);
  }
  return parts;
}

bool is_whole(const GlobalTensor& tensor, const std::vector<const TensorPart*>& parts) {
  std::vector<Box> boxes;
  for (const TensorPart* part : parts) boxes.push_back(part->box);
  return tensor.problem.empty() && !find_overlap(boxes) && !find_gap(whole_of(tensor.shape), boxes);
}

bool are_cut_alike(const std::vector<const TensorPart*>& a, const std::vector<const TensorPart*>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const TensorPart* x, const TensorPart* y) { return x->box == y->box; });
}

/// Where the parts meet. Those of b are in the order of their boxes, and so of where they begin in the first dimension.
std::vector<CommonBox> common_boxes(const std::vector<const TensorPart*>& a, const std::vector<const TensorPart*>& b) {
  const auto begin_of = [](const Box& box) { return box.offsets.empty() ? 0 : box.offsets.front(); };
  const auto end_of = [&](const Box& box) { return box.offsets.empty() ? 1 : begin_of(box) + box.shape.front(); };
  std::int64_t longest = 0;
  for (const TensorPart* part : b) longest = std::max(longest, end_of(part->box) - begin_of(part->box));
  std::vector<CommonBox> boxes;
  for (const TensorPart* x : a) {
    auto y = std::partition_point(
        b.begin(), b.end(), [&](const TensorPart* part) { return begin_of(part->box) + longest <= begin_of(x->box); });
    for (; y != b.end() && begin_of((*y)->box) < end_of(x->box); ++y) {
      const auto box = intersection_of(x->box, (*y)->box);
      if (!box) continue;
      boxes.push_back({.file_a = x->file.file,
                       .file_b = (*y)->file.file,
                       .a = view_on(*x, *box).tensor,
                       .b = view_on(**y, *box).tensor});
    }
  }
  return boxes;
}

/// Nothing if they are cut alike, or can't be compared as wholes.
std::optional<ReshardedTensor> reshard(const GlobalTensor& a, const GlobalTensor& b) {
  const bool whole_bytes = bits_of(a.dtype) % 8 == 0 && bits_of(b.dtype) % 8 == 0;
  if (a.shape != b.shape || a.layout != b.layout || !whole_bytes || !are_comparable(a.dtype, b.dtype)) {
    return std::nullopt;
  }
  const std::vector<const TensorPart*> parts_a = without_replicas(a);
  const std::vector<const TensorPart*> parts_b = without_replicas(b);
  if (parts_a.empty() || parts_b.empty() || are_cut_alike(parts_a, parts_b)) return std::nullopt;
  if (!is_whole(a, parts_a) || !is_whole(b, parts_b)) return std::nullopt;
  return ReshardedTensor{.name = a.name,
                         .shape = a.shape,
                         .dtype_a = a.dtype,
                         .dtype_b = b.dtype,
                         .file_a = parts_a.front()->file.file,
                         .file_b = parts_b.front()->file.file,
                         .boxes = common_boxes(parts_a, parts_b)};
}

ReshardedParts parts_of(const SideWholes& side, const std::vector<std::optional<std::size_t>>& resharded) {
  ReshardedParts parts;
  for (const std::vector<std::size_t>& file : side.of) {
    auto& of_file = parts.emplace_back();
    for (const std::size_t whole : file) of_file.push_back(resharded[whole]);
  }
  return parts;
}

}  // namespace

Resharding find_resharded(const std::vector<SideFile>& a, const std::vector<SideFile>& b) {
  Resharding found;
  if (!has_parts(a) && !has_parts(b)) return found;
  const SideWholes wholes_a = wholes_of(a);
  const SideWholes wholes_b = wholes_of(b);
  const std::vector<std::optional<std::size_t>> partners = partners_of(wholes_a, wholes_b);
  std::vector<std::optional<std::size_t>> resharded_a(wholes_a.tensors.size());
  std::vector<std::optional<std::size_t>> resharded_b(wholes_b.tensors.size());
  for (std::size_t i = 0; i < partners.size(); ++i) {
    if (!partners[i] || resharded_b[*partners[i]]) continue;
    auto tensor = reshard(wholes_a.tensors[i], wholes_b.tensors[*partners[i]]);
    if (!tensor) continue;
    resharded_a[i] = resharded_b[*partners[i]] = found.tensors.size();
    found.tensors.push_back(std::move(*tensor));
  }
  if (found.tensors.empty()) return found;
  found.parts_a = parts_of(wholes_a, resharded_a);
  found.parts_b = parts_of(wholes_b, resharded_b);
  return found;
}

}  // namespace ckpt::ops
