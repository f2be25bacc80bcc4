// SPDX-License-Identifier: Apache-2.0
/// Reads checkpoints, whichever ranks wrote them. Every byte that's given out was checked against its hash.
#pragma once

#include <ckpt/torch_error.hpp>
#include <ckpt/torch_state.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace ckpt::torch {

/// Thread-safe. The checkpoint isn't pruned while one is open.
class CKPT_TORCH_API Loader {
 public:
  /// `selector` is what follows the @ of an address: a step, "latest", "latest~1", "id:PREFIX". Empty: the newest that
  /// is neither lossy nor suspect. Throws Error (CKPT_NOT_FOUND).
  explicit Loader(const std::string& store, const std::string& selector = {});
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;
  ~Loader();

  [[nodiscard]] std::uint64_t step() const;
  [[nodiscard]] std::uint32_t world_size() const;
  [[nodiscard]] std::string id() const;

  /// Of all tensors, joined over the ranks, or of those that a pattern matches (fnmatch over the whole name).
  [[nodiscard]] std::vector<std::string> names(const std::string& pattern = "*") const;
  [[nodiscard]] bool has(const std::string& name) const;
  /// Of the whole, in elements. Throws Error (CKPT_NOT_FOUND), as all below.
  [[nodiscard]] std::vector<std::int64_t> shape(const std::string& name) const;
  [[nodiscard]] at::ScalarType dtype(const std::string& name) const;

  /// The whole of a tensor, contiguous, in the host's memory; or the box of it [offsets, offsets + shape). Gaps between
  /// shards, or replicas that differ, are CKPT_DAMAGED.
  [[nodiscard]] at::Tensor load(const std::string& name) const;
  [[nodiscard]] at::Tensor load(const std::string& name, at::IntArrayRef offsets, at::IntArrayRef shape) const;
  /// All whose names the pattern matches; an exact name is one, too. CKPT_NOT_FOUND if there's none.
  [[nodiscard]] std::map<std::string, at::Tensor> load_matching(const std::string& pattern) const;

  /// The same in place: to where `into` is, whatever its strides; another type or device is converted to. Shapes must
  /// agree. What it holds after a failure is undefined.
  void load_into(const std::string& name, const at::Tensor& into) const;
  /// `into` is the box of the whole that begins at `offsets`.
  void load_into(const std::string& name, const at::Tensor& into, at::IntArrayRef offsets) const;

  /// Fills all that a state refers to: tensors in place, of sharded ones the part that belongs there, so that what 8
  /// ranks saved is resumed on 6; numbers, optimizers, generators. Returns the names that the state has and the
  /// checkpoint lacks: unless `strict` is false, these are CKPT_NOT_FOUND, before anything is filled.
  std::vector<std::string> load_into(const State& state, bool strict = true) const;

  /// The whole of a tensor over memory that is mapped from the checkpoint's file where it can be: stored raw, in one
  /// piece, by one rank. Its bytes are checked now and read from the page cache later; nobody's memory is taken until
  /// it's written to, which changes the tensor and never the file. Elsewhere the same as load(); `is_mapped` tells.
  [[nodiscard]] at::Tensor map(const std::string& name, bool* is_mapped = nullptr) const;

  /// A rank's file, as State::add_file() or any trainer gave it.
  [[nodiscard]] std::string file(const std::string& path, std::uint32_t rank = 0) const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace ckpt::torch
