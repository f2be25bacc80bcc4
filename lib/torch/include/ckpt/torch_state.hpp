// SPDX-License-Identifier: Apache-2.0
/// What a checkpoint is made of, said once, for saving and for loading:
///
///     ckpt::torch::State state;
///     state.add("model", *model).add("optimizer", optimizer, model.get()).add("step", step);
///
///     loader.load_into(state);   // at the start
///     saver.save(step, state);   // again and again: what is stored is what it holds then
///
/// A State owns the tensors that it's given. Modules, optimizers and numbers it only refers to, and looks into at each
/// save and load: they must outlive it. Names are dotted, UTF-8, and unlike each other in one state. Of ranks that save
/// under the same name, each holds either a part of one whole (add_sharded) or the very same values; what differs
/// between ranks, a generator say, has the rank in its name.
#pragma once

#include <ckpt/torch_error.hpp>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace ckpt::torch {

/// Not thread-safe. Copies refer to the same things.
class CKPT_TORCH_API State {
 public:
  State();
  ~State();
  State(const State&);
  State& operator=(const State&);
  State(State&&) noexcept;
  State& operator=(State&&) noexcept;

  /// A tensor of any device, strided as it is. It's stored as a view on its storage, which is stored whole, once,
  /// however many tensors share it; so they do again in what ckpt-restore gives back.
  State& add(std::string name, at::Tensor tensor);

  /// The part of a tensor of shape `global_shape` that begins at `offsets`, both in elements and of as many dimensions
  /// as `local`. Throws Error (CKPT_INVALID) if it doesn't lie within.
  State& add_sharded(std::string name, at::Tensor local, at::IntArrayRef global_shape, at::IntArrayRef offsets);

  /// All parameters and buffers of a module and its children, as PREFIX.NAME.
  State& add(std::string prefix, const ::torch::nn::Module& module);

  /// What an optimizer knows: PREFIX.state.PARAMETER.FIELD and PREFIX.param_groups.GROUP.OPTION, numbers as tensors
  /// without dimensions. PARAMETER is the parameter's name in `names`, else its number, counted over all groups. What
  /// the optimizer hasn't yet, since it hasn't made a step, is made at loading; what the checkpoint hasn't is dropped.
  ///
  /// So for Adam, AdamW, SGD, RMSprop and Adagrad. Any other is asked to serialise itself, during the call of save(),
  /// and stored as bytes named PREFIX.archive. (LBFGS of LibTorch 1.13 can't, before its history is full.)
  State& add(std::string prefix, ::torch::optim::Optimizer& optimizer, const ::torch::nn::Module* names = nullptr);

  /// Read by saving, written by loading.
  State& add(std::string name, std::int64_t& number);
  State& add(std::string name, double& number);

  /// The state of a generator of random numbers: with it, dropout and shuffling go on as they would have.
  State& add(std::string name, at::Generator generator);

  /// A file beside the tensors, by its relative path. Loader::file() gives it back; load_into() doesn't look at it.
  State& add_file(std::string path, std::string bytes);

  class Sources;
  [[nodiscard]] Sources& sources() const { return *sources_; }

 private:
  std::unique_ptr<Sources> sources_;
};

}  // namespace ckpt::torch
