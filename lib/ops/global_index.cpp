// SPDX-License-Identifier: Apache-2.0
#include "ops/global_index.hpp"

#include "ops/path_numbers.hpp"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <unordered_map>

namespace ckpt::ops {
namespace {

/// The file's other parts of a tensor are called `name#2` and so on: one rank may hold several.
std::string_view without_suffix(std::string_view name) {
  const std::size_t mark = name.rfind('#');
  if (mark == std::string_view::npos || mark + 1 == name.size()) return name;
  const std::string_view digits = name.substr(mark + 1);
  return digits.find_first_not_of("0123456789") == std::string_view::npos ? name.substr(0, mark) : name;
}

/// The name that all parts of a tensor have, in a file whose sharded tensors are these.
std::string_view name_of_whole(const Tensor& tensor,
                               const std::unordered_map<std::string_view, const Tensor*>& sharded) {
  if (tensor.global_shape.empty()) return tensor.name;
  const auto first = sharded.find(without_suffix(tensor.name));
  const bool is_another = first != sharded.end() && first->second->global_shape == tensor.global_shape &&
                          first->second->dtype == tensor.dtype;
  return is_another ? first->first : std::string_view(tensor.name);
}

std::string about(DType dtype, const std::vector<std::int64_t>& shape) {
  std::string text = std::string(name_of(dtype)) + " [";
  for (std::size_t d = 0; d < shape.size(); ++d) text += (d == 0 ? "" : ", ") + std::to_string(shape[d]);
  return text + ']';
}

}  // namespace

void GlobalIndex::add_part(GlobalTensor& whole, const Origin& first, const Origin& from, FileOfShard file,
                           const Tensor& tensor) {
  const std::vector<std::int64_t>& shape = tensor.global_shape.empty() ? tensor.shape : tensor.global_shape;
  const auto where = [](const Origin& origin) {
    return "rank " + std::to_string(origin.rank) + " ('" + origin.path + "')";
  };
  if (tensor.dtype != whole.dtype || tensor.layout != whole.layout || shape != whole.shape) {
    if (whole.problem.empty()) {
      whole.problem = "is " + about(whole.dtype, whole.shape) + " for " + where(first) + " and " +
                      about(tensor.dtype, shape) + " for " + where(from);
    }
    return;
  }
  TensorPart part{.file = file, .box = whole_of(tensor.shape), .view = tensor};
  if (!tensor.global_shape.empty()) part.box.offsets = tensor.global_offsets;
  const bool is_sound = element_count(tensor) && contiguous_bytes({.dtype = tensor.dtype, .shape = shape});
  if (!is_sound || (element_count(tensor) != 0 && !lies_inside(part.box, shape))) {
    if (whole.problem.empty()) {
      whole.problem = "has a part outside of its shape " + about(whole.dtype, shape) + ", at " + where(from);
    }
    return;
  }
  if (!tensor.has_bytes || element_count(tensor) == 0) return;
  part.view.name.clear();
  part.view.global_shape.clear();
  part.view.global_offsets.clear();
  whole.parts.push_back(std::move(part));
}

std::vector<std::size_t> GlobalIndex::add_file(FileOfShard file, std::uint32_t rank, const std::string& path,
                                               std::span<const Tensor> tensors) {
  std::unordered_map<std::string_view, const Tensor*> sharded;
  for (const Tensor& tensor : tensors) {
    if (!tensor.global_shape.empty()) sharded.emplace(tensor.name, &tensor);
  }
  const Origin from{.rank = rank, .path = path};
  const std::string key = without_numbers(path);
  std::vector<std::size_t> wholes;
  for (const Tensor& tensor : tensors) {
    const std::string_view name = name_of_whole(tensor, sharded);
    const auto [known, is_new] = by_key_.try_emplace({key, std::string(name)}, wholes_.size());
    if (is_new) {
      wholes_.push_back({.name = std::string(name),
                         .path = path,
                         .dtype = tensor.dtype,
                         .layout = tensor.layout,
                         .shape = tensor.global_shape.empty() ? tensor.shape : tensor.global_shape});
      origins_.push_back(from);
    }
    add_part(wholes_[known->second], origins_[known->second], from, file, tensor);
    wholes.push_back(known->second);
  }
  return wholes;
}

std::vector<GlobalTensor> GlobalIndex::finish() && {
  for (GlobalTensor& whole : wholes_) {
    std::stable_sort(whole.parts.begin(), whole.parts.end(), [](const TensorPart& a, const TensorPart& b) {
      return std::tie(a.box.offsets, a.box.shape, a.file.shard) < std::tie(b.box.offsets, b.box.shape, b.file.shard);
    });
  }
  return std::move(wholes_);
}

}  // namespace ckpt::ops
