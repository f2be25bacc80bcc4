// SPDX-License-Identifier: Apache-2.0
// What a state holds, as the library wants it: storages, and tensors that are views on them.
#pragma once

#include "torch/save_progress.hpp"
#include "torch/state_sources.hpp"

#include <ckpt/torch_saver.hpp>

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ckpt::torch {

class SavePlan {
 public:
  /// Throws Error, naming the tensor.
  SavePlan(const State& state, const SaverOptions& options);

  [[nodiscard]] bool has_copies() const { return !elsewhere_.empty(); }
  /// Names the ranges, in the order of the storages, and begins the copies.
  void name_memory(SaveProgress& progress, const std::shared_ptr<HostBuffers>& buffers, CopyStreams& streams) const;
  void describe(ckpt_save* save) const;

 private:
  struct Planned {
    Entry entry;
    std::string dtype;
    std::size_t storage = 0;
  };
  void add(Entry entry);

  std::vector<Planned> tensors_;
  std::vector<at::Tensor> storages_;    ///< one tensor on each
  std::vector<std::size_t> elsewhere_;  ///< storages that aren't in the host's memory
  std::vector<std::pair<std::string, std::string>> files_;
  std::unordered_map<const void*, std::size_t> known_;  ///< storages
};

}  // namespace ckpt::torch
