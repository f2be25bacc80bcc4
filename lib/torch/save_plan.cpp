// SPDX-License-Identifier: Apache-2.0
#include "torch/save_plan.hpp"

#include "torch/checked.hpp"
#include "torch/crc32.hpp"
#include "torch/dtype_names.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <fnmatch.h>
#include <algorithm>
#include <map>

namespace ckpt::torch {
namespace {

bool is_left_to_others(const Entry& entry, const SaverOptions& options) {
  if (entry.is_sharded || options.world_size <= 1) return false;
  const bool is_replicated =
      std::any_of(options.replicated.begin(), options.replicated.end(), [&](const std::string& pattern) {
        return pattern == entry.name || ::fnmatch(pattern.c_str(), entry.name.c_str(), 0) == 0;
      });
  return is_replicated && crc32(entry.name) % options.world_size != options.rank;
}

/// Numbers of one type share a storage: a record for each would be most of a small file.
void pack_numbers(std::vector<Entry>& entries) {
  std::map<at::ScalarType, std::vector<std::size_t>> by_type;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const at::Tensor& tensor = entries[i].tensor;
    if (entries[i].put && tensor.defined() && tensor.dim() == 0 && tensor.is_cpu())
      by_type[tensor.scalar_type()].push_back(i);
  }
  for (const auto& [type, places] : by_type) {
    std::vector<at::Tensor> numbers;
    for (const std::size_t i : places) numbers.push_back(entries[i].tensor);
    const at::Tensor all = at::stack(numbers);
    for (std::size_t i = 0; i < places.size(); ++i) entries[places[i]].tensor = all[static_cast<std::int64_t>(i)];
  }
}

}  // namespace

SavePlan::SavePlan(const State& state, const SaverOptions& options) : files_(state.sources().files) {
  const at::NoGradGuard no_grad;
  std::vector<Entry> entries = state.sources().take();
  entries.erase(std::remove_if(entries.begin(), entries.end(),
                               [&](const Entry& entry) { return is_left_to_others(entry, options); }),
                entries.end());
  pack_numbers(entries);
  for (Entry& entry : entries) add(std::move(entry));
}

void SavePlan::add(Entry entry) {
  const auto wrong = [&](ckpt_status code, const std::string& why) {
    refuse(code, "tensor '" + entry.name + "' " + why);
  };
  at::Tensor& tensor = entry.tensor;
  if (!tensor.defined()) wrong(CKPT_INVALID, "is undefined");
  if (tensor.is_nested()) wrong(CKPT_UNSUPPORTED, "is nested");
  if (tensor.layout() != at::kStrided) wrong(CKPT_UNSUPPORTED, "is sparse");
  if (tensor.is_quantized()) wrong(CKPT_UNSUPPORTED, "is quantised");
  if (tensor.is_meta() || !tensor.has_storage()) wrong(CKPT_UNSUPPORTED, "has no memory");
  if (tensor.is_conj()) tensor = tensor.resolve_conj();
  if (tensor.is_neg()) tensor = tensor.resolve_neg();
  Planned planned;
  planned.dtype = dtype_name(tensor.scalar_type());
  if (planned.dtype.empty()) {
    wrong(CKPT_UNSUPPORTED, std::string("is of type ") + c10::toString(tensor.scalar_type()) + ", which isn't known");
  }
  const auto [found, is_new] =
      known_.emplace(tensor.storage().unsafeGetStorageImpl(), storages_.size());  // kept alive by storages_
  planned.storage = found->second;
  if (is_new) {
    if (!tensor.is_cpu() && tensor.storage().nbytes() > 0) elsewhere_.push_back(storages_.size());
    storages_.push_back(tensor);
  }
  planned.entry = std::move(entry);
  tensors_.push_back(std::move(planned));
}

void SavePlan::name_memory(SaveProgress& progress, const std::shared_ptr<HostBuffers>& buffers,
                           CopyStreams& streams) const {
  std::vector<at::Tensor> copies;
  if (!elsewhere_.empty()) {
    std::vector<at::Tensor> sources;
    for (const std::size_t i : elsewhere_) sources.push_back(storages_[i]);
    copies = progress.copy_with(buffers).begin(sources, streams);
  }
  auto copy = copies.begin();
  auto next = elsewhere_.begin();
  for (std::size_t i = 0; i < storages_.size(); ++i) {
    const at::Tensor& tensor = storages_[i];
    progress.keep(tensor);
    if (next != elsewhere_.end() && *next == i) {
      check(ckpt_save_memory(progress.raw(), copy->data_ptr(), static_cast<std::uint64_t>(copy->numel()),
                             CKPT_KEEP_STEADY, nullptr));
      ++next;
      ++copy;
      continue;
    }
    // Devices write to pinned memory, and no one would see it.
    const int keep = tensor.is_cpu() && tensor.is_pinned() ? CKPT_KEEP_COPY : CKPT_KEEP_BEST;
    const std::uint64_t size = tensor.storage().nbytes();
    check(ckpt_save_memory(progress.raw(), tensor.storage().data_ptr().get(), size, keep, nullptr));
  }
}

void SavePlan::describe(ckpt_save* save) const {
  for (const auto& [path, bytes] : files_) check(ckpt_save_file(save, path.c_str(), bytes.data(), bytes.size()));
  for (const Planned& planned : tensors_) {
    const Entry& entry = planned.entry;
    const at::Tensor& tensor = entry.tensor;
    ckpt_tensor described{};
    described.struct_size = sizeof described;
    described.name = entry.name.c_str();
    described.dtype = planned.dtype.c_str();
    described.range = planned.storage;
    described.offset =
        static_cast<std::uint64_t>(tensor.storage_offset() * static_cast<std::int64_t>(tensor.element_size()));
    described.dims = static_cast<std::uint32_t>(tensor.dim());
    described.shape = tensor.sizes().data();
    described.strides = tensor.strides().data();
    if (entry.is_sharded) {
      described.global_shape = entry.global_shape.data();
      described.global_offsets = entry.offsets.data();
    }
    check(ckpt_save_tensor(save, &described));
  }
}

}  // namespace ckpt::torch
