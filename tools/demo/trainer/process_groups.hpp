// SPDX-License-Identifier: Apache-2.0
// Who talks with whom. Ranks are dealt out so that those that share layers are neighbours:
//
//     rank = (data * pp + stage) * tp + tensor
//
// and each rank is in three groups: `data`, whose members hold the same part of the model and train it on different
// samples; `tensor`, which shares the layers of a stage; `model`, which together has one whole model.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace trainer {

/// Where one rank is. Sizes and numbers.
struct Place {
  std::int64_t dp, pp, tp;
  std::int64_t data, stage, tensor;

  /// Throws std::runtime_error if the ranks can't be dealt out so.
  static Place of(std::int64_t rank, std::int64_t world_size, std::int64_t tp, std::int64_t pp);
  [[nodiscard]] bool is_first_stage() const { return stage == 0; }
  [[nodiscard]] bool is_last_stage() const { return stage + 1 == pp; }
};

/// All functions throw std::runtime_error if another rank is gone; the group is of no use from then on.
class Group {
 public:
  class Connections;
  Group() = default;
  explicit Group(std::shared_ptr<Connections> connections) : connections_(std::move(connections)) {}

  [[nodiscard]] bool is_one() const { return connections_ == nullptr; }

  /// In place, on contiguous tensors. Gloo passes sums around a ring, in an order that depends on nothing but sizes: a
  /// world of the same size gets the same bits again, and all ranks get the same ones.
  void sum(const at::Tensor& tensor) const;
  void send(const at::Tensor& tensor, std::int64_t to) const;
  void receive(const at::Tensor& into, std::int64_t from) const;

 private:
  std::shared_ptr<Connections> connections_;  ///< none: a group of one
};

struct Groups {
  Group data, tensor, model;

  /// Waits for all ranks. Rank 0 listens at `port`.
  static Groups connect(const Place& place, std::int64_t rank, std::int64_t world_size, const std::string& master,
                        std::uint16_t port);
};

}  // namespace trainer
