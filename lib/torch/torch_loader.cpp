// SPDX-License-Identifier: Apache-2.0
#include "torch/checked.hpp"
#include "torch/dtype_names.hpp"
#include "torch/state_sources.hpp"

#include <ckpt/torch_loader.hpp>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <fnmatch.h>
#include <algorithm>
#include <utility>

namespace ckpt::torch {
namespace {

using Shape = std::vector<std::int64_t>;

/// Whether two elements may share memory.
bool overlaps(const at::Tensor& tensor) {
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;  // stride and size
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) > 1) dims.emplace_back(tensor.stride(d), tensor.size(d));
  }
  std::sort(dims.begin(), dims.end());
  std::int64_t reach = 1;
  for (const auto& [stride, size] : dims) {
    if (stride < reach) return true;
    reach = stride * size;
  }
  return false;
}

std::string text_of(at::IntArrayRef shape) {
  std::string text = "[";
  for (std::size_t d = 0; d < shape.size(); ++d) text += (d == 0 ? "" : ", ") + std::to_string(shape[d]);
  return text + "]";
}

}  // namespace

struct Loader::Impl {
  struct Stored {
    std::string dtype;
    Shape shape;
  };

  explicit Impl(const std::string& store, const std::string& selector) {
    check(ckpt_load_open(store.c_str(), selector.empty() ? nullptr : selector.c_str(), &load));
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() { ckpt_load_free(load); }

  [[nodiscard]] Stored find(const std::string& name) const {
    ckpt_tensor_info info{};
    info.struct_size = sizeof info;
    check(ckpt_load_find(load, name.c_str(), &info));
    return {info.dtype, Shape(info.shape, info.shape + info.dims)};
  }

  [[nodiscard]] at::ScalarType type_of(const std::string& name, const Stored& stored) const {
    const auto type = dtype_named(stored.dtype);
    if (!type) refuse(CKPT_UNSUPPORTED, "tensor '" + name + "' is of type " + stored.dtype + ", unknown to LibTorch");
    return *type;
  }

  void read(const std::string& name, at::IntArrayRef offsets, const at::Tensor& into) const {
    if (into.numel() == 0) return;
    check(ckpt_load_slice(load, name.c_str(), offsets.data(), into.sizes().data(), into.strides().data(),
                          into.data_ptr()));
  }

  /// `whole` is what the tensor must be of.
  void fill(const std::string& name, const at::Tensor& into, at::IntArrayRef offsets, const Shape* whole) const {
    if (!into.defined()) refuse(CKPT_INVALID, "tensor '" + name + "' is to be read into an undefined one");
    const Stored stored = find(name);
    if (whole != nullptr && *whole != stored.shape) {
      refuse(CKPT_INVALID, "tensor '" + name + "' is of shape " + text_of(stored.shape) + ", to be read into one of " +
                               text_of(*whole));
    }
    const at::NoGradGuard no_grad;
    const at::ScalarType type = type_of(name, stored);
    if (into.is_cpu() && into.scalar_type() == type && into.layout() == at::kStrided && !into.is_conj() &&
        !into.is_neg() && !overlaps(into)) {
      read(name, offsets, into);
      return;
    }
    const at::Tensor staged = at::empty(into.sizes(), at::TensorOptions().dtype(type));
    read(name, offsets, staged);
    into.copy_(staged);
  }

  ckpt_load* load = nullptr;
};

Loader::Loader(const std::string& store, const std::string& selector)
    : impl_(std::make_shared<Impl>(store, selector)) {}
Loader::~Loader() = default;

std::uint64_t Loader::step() const { return ckpt_load_step(impl_->load); }
std::uint32_t Loader::world_size() const { return ckpt_load_world_size(impl_->load); }
std::string Loader::id() const { return ckpt_load_id(impl_->load); }

std::vector<std::string> Loader::names(const std::string& pattern) const {
  std::vector<std::string> found;
  const std::size_t count = ckpt_load_tensor_count(impl_->load);
  for (std::size_t i = 0; i < count; ++i) {
    ckpt_tensor_info info{};
    info.struct_size = sizeof info;
    check(ckpt_load_tensor_at(impl_->load, i, &info));
    if (pattern == info.name) return {pattern};
    if (::fnmatch(pattern.c_str(), info.name, 0) == 0) found.emplace_back(info.name);
  }
  return found;
}

bool Loader::has(const std::string& name) const {
  ckpt_tensor_info info{};
  info.struct_size = sizeof info;
  const int status = ckpt_load_find(impl_->load, name.c_str(), &info);
  if (status != CKPT_OK && status != CKPT_NOT_FOUND) throw last_error(status);
  return status == CKPT_OK;
}

Shape Loader::shape(const std::string& name) const { return impl_->find(name).shape; }
at::ScalarType Loader::dtype(const std::string& name) const { return impl_->type_of(name, impl_->find(name)); }

at::Tensor Loader::load(const std::string& name) const {
  const Shape whole = shape(name);
  return load(name, Shape(whole.size(), 0), whole);
}

at::Tensor Loader::load(const std::string& name, at::IntArrayRef offsets, at::IntArrayRef shape) const {
  const Impl::Stored stored = impl_->find(name);
  if (offsets.size() != stored.shape.size() || shape.size() != stored.shape.size()) {
    refuse(CKPT_INVALID, "tensor '" + name + "' has " + std::to_string(stored.shape.size()) + " dimensions");
  }
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (offsets[d] < 0 || shape[d] < 0 || offsets[d] > stored.shape[d] || shape[d] > stored.shape[d] - offsets[d]) {
      refuse(CKPT_INVALID, "tensor '" + name + "' is of shape " + text_of(stored.shape) + ": it has no box of " +
                               text_of(shape) + " at " + text_of(offsets));
    }
  }
  at::Tensor into = at::empty(shape, at::TensorOptions().dtype(impl_->type_of(name, stored)));
  impl_->read(name, offsets, into);
  return into;
}

std::map<std::string, at::Tensor> Loader::load_matching(const std::string& pattern) const {
  std::map<std::string, at::Tensor> loaded;
  for (const std::string& name : names(pattern)) loaded.emplace(name, load(name));
  if (loaded.empty()) refuse(CKPT_NOT_FOUND, "no tensor matches '" + pattern + "'");
  return loaded;
}

void Loader::load_into(const std::string& name, const at::Tensor& into) const {
  if (!into.defined()) refuse(CKPT_INVALID, "tensor '" + name + "' is to be read into an undefined one");
  const Shape whole = into.sizes().vec();
  impl_->fill(name, into, Shape(whole.size(), 0), &whole);
}

void Loader::load_into(const std::string& name, const at::Tensor& into, at::IntArrayRef offsets) const {
  if (!into.defined() || static_cast<std::size_t>(into.dim()) != shape(name).size() ||
      offsets.size() != shape(name).size()) {
    refuse(CKPT_INVALID, "tensor '" + name + "' has another number of dimensions");
  }
  impl_->fill(name, into, offsets, nullptr);
}

std::vector<std::string> Loader::load_into(const State& state, bool strict) const {
  StoredShapes stored;
  for (const std::string& name : names()) stored.emplace(name, shape(name));
  for (const auto& source : state.sources().all) source->prepare(stored);
  const std::vector<Entry> entries = state.sources().take();
  std::vector<std::string> missing;
  for (const Entry& entry : entries) {
    if (stored.count(entry.name) == 0) missing.push_back(entry.name);
  }
  if (!missing.empty() && strict) {
    throw Error(CKPT_NOT_FOUND,
                "the checkpoint has no '" + missing.front() + "'" +
                    (missing.size() > 1 ? " and " + std::to_string(missing.size() - 1) + " more" : ""),
                "unless it's strict, they're left as they are");
  }
  for (const Entry& entry : entries) {
    if (stored.count(entry.name) == 0) continue;
    if (entry.put) {
      entry.put(load(entry.name));
    } else if (entry.is_sharded) {
      impl_->fill(entry.name, entry.tensor, entry.offsets, &entry.global_shape);
    } else {
      load_into(entry.name, entry.tensor);
    }
  }
  return missing;
}

at::Tensor Loader::map(const std::string& name, bool* is_mapped) const {
  const Impl::Stored stored = impl_->find(name);
  const at::ScalarType type = impl_->type_of(name, stored);
  ckpt_mapping mapping{};
  mapping.struct_size = sizeof mapping;
  const int status = ckpt_load_map(impl_->load, name.c_str(), &mapping);
  if (is_mapped != nullptr) *is_mapped = status == CKPT_OK;
  if (status == CKPT_UNSUPPORTED) return load(name);
  check(status);
  return at::from_blob(
      mapping.data, stored.shape, [mapping](void*) mutable { ckpt_unmap(&mapping); }, at::TensorOptions().dtype(type));
}

std::string Loader::file(const std::string& path, std::uint32_t rank) const {
  std::uint64_t size = 0;
  check(ckpt_load_file_size(impl_->load, rank, path.c_str(), &size));
  std::string bytes(size, '\0');
  check(ckpt_load_file(impl_->load, rank, path.c_str(), bytes.data(), size));
  return bytes;
}

}  // namespace ckpt::torch
