// SPDX-License-Identifier: Apache-2.0
// What a State refers to. Each source says at every save and load anew which tensors it has.
#pragma once

#include <ckpt/torch_state.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ckpt::torch {

struct Entry {
  std::string name;
  at::Tensor tensor;
  std::vector<std::int64_t> global_shape;  ///< empty: `tensor` is the whole
  std::vector<std::int64_t> offsets;
  bool is_sharded = false;
  /// What takes the loaded tensor, of whatever shape it was stored in. Nothing: it's loaded into `tensor`.
  std::function<void(const at::Tensor&)> put;
};

/// Names and shapes of a checkpoint's tensors.
using StoredShapes = std::map<std::string, std::vector<std::int64_t>>;

class Source {
 public:
  Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  virtual ~Source() = default;
  /// As it is now. Who adds entries copies nothing large.
  virtual void take(std::vector<Entry>& entries) = 0;
  /// Before take() for loading: makes what the checkpoint has and isn't there yet, and drops what it hasn't.
  virtual void prepare(const StoredShapes& stored) { (void)stored; }
};

class State::Sources {
 public:
  std::vector<std::shared_ptr<Source>> all;
  std::vector<std::pair<std::string, std::string>> files;  ///< path and bytes

  [[nodiscard]] std::vector<Entry> take() const {
    std::vector<Entry> entries;
    for (const auto& source : all) source->take(entries);
    return entries;
  }
};

[[nodiscard]] std::shared_ptr<Source> optimizer_source(std::string prefix, ::torch::optim::Optimizer& optimizer,
                                                       const ::torch::nn::Module* names);

/// A tensor without dimensions that is read from, and written to, by functions.
[[nodiscard]] Entry number_entry(std::string name, std::int64_t& number);
[[nodiscard]] Entry number_entry(std::string name, double& number);
[[nodiscard]] Entry number_entry(std::string name, bool& number);

}  // namespace ckpt::torch
