// SPDX-License-Identifier: Apache-2.0
#include "torch/checked.hpp"
#include "torch/state_sources.hpp"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <mutex>
#include <utility>

namespace ckpt::torch {
namespace {

template <class Number>
Entry entry_of(std::string name, Number& number, at::ScalarType type) {
  Entry entry;
  entry.put = [name, &number](const at::Tensor& loaded) {
    if (loaded.numel() != 1) refuse(CKPT_INVALID, "tensor '" + name + "' is to be a number, and has several");
    number = loaded.item().to<Number>();
  };
  entry.name = std::move(name);
  entry.tensor = at::scalar_tensor(number, at::TensorOptions().dtype(type));
  return entry;
}

class TensorSource final : public Source {
 public:
  explicit TensorSource(Entry entry) : entry_(std::move(entry)) {}
  void take(std::vector<Entry>& entries) override { entries.push_back(entry_); }

 private:
  Entry entry_;
};

template <class Number>
class NumberSource final : public Source {
 public:
  NumberSource(std::string name, Number& number) : name_(std::move(name)), number_(number) {}
  void take(std::vector<Entry>& entries) override { entries.push_back(number_entry(name_, number_)); }

 private:
  std::string name_;
  Number& number_;
};

class ModuleSource final : public Source {
 public:
  ModuleSource(std::string prefix, const ::torch::nn::Module& module) : prefix_(std::move(prefix)), module_(module) {}
  void take(std::vector<Entry>& entries) override {
    for (const auto& parameter : module_.named_parameters()) add(entries, parameter.key(), parameter.value());
    for (const auto& buffer : module_.named_buffers()) add(entries, buffer.key(), buffer.value());
  }

 private:
  void add(std::vector<Entry>& entries, const std::string& name, const at::Tensor& tensor) const {
    if (!tensor.defined()) return;  // a bias that was turned off
    Entry entry;
    entry.name = prefix_.empty() ? name : prefix_ + "." + name;
    entry.tensor = tensor;
    entries.push_back(std::move(entry));
  }

  std::string prefix_;
  const ::torch::nn::Module& module_;
};

class GeneratorSource final : public Source {
 public:
  GeneratorSource(std::string name, at::Generator generator)
      : name_(std::move(name)), generator_(std::move(generator)) {}
  void take(std::vector<Entry>& entries) override {
    Entry entry;
    entry.name = name_;
    {
      const std::lock_guard lock(generator_.mutex());
      entry.tensor = generator_.get_state();
    }
    entry.put = [generator = generator_](const at::Tensor& loaded) mutable {
      const std::lock_guard lock(generator.mutex());
      generator.set_state(loaded);
    };
    entries.push_back(std::move(entry));
  }

 private:
  std::string name_;
  at::Generator generator_;
};

}  // namespace

Entry number_entry(std::string name, std::int64_t& number) { return entry_of(std::move(name), number, at::kLong); }
Entry number_entry(std::string name, double& number) { return entry_of(std::move(name), number, at::kDouble); }
Entry number_entry(std::string name, bool& number) { return entry_of(std::move(name), number, at::kBool); }

State::State() : sources_(std::make_unique<Sources>()) {}
State::~State() = default;
State::State(const State& other) : sources_(std::make_unique<Sources>(*other.sources_)) {}
State& State::operator=(const State& other) {
  if (this != &other) *sources_ = *other.sources_;
  return *this;
}
State::State(State&& other) noexcept : sources_(std::move(other.sources_)) {}
State& State::operator=(State&& other) noexcept {
  sources_.swap(other.sources_);
  return *this;
}

State& State::add(std::string name, at::Tensor tensor) {
  Entry entry;
  entry.name = std::move(name);
  entry.tensor = std::move(tensor);
  sources_->all.push_back(std::make_shared<TensorSource>(std::move(entry)));
  return *this;
}

State& State::add_sharded(std::string name, at::Tensor local, at::IntArrayRef global_shape, at::IntArrayRef offsets) {
  const auto wrong = [&](const std::string& why) { refuse(CKPT_INVALID, "tensor '" + name + "' " + why); };
  if (!local.defined()) wrong("is undefined");
  const auto dims = static_cast<std::size_t>(local.dim());
  if (global_shape.size() != dims || offsets.size() != dims) wrong("has another number of dimensions than its whole");
  for (std::size_t d = 0; d < dims; ++d) {
    if (offsets[d] < 0 || offsets[d] > global_shape[d] || local.sizes()[d] > global_shape[d] - offsets[d])
      wrong("doesn't lie in its whole");
  }
  Entry entry;
  entry.name = std::move(name);
  entry.tensor = std::move(local);
  entry.global_shape = global_shape.vec();
  entry.offsets = offsets.vec();
  entry.is_sharded = true;
  sources_->all.push_back(std::make_shared<TensorSource>(std::move(entry)));
  return *this;
}

State& State::add(std::string prefix, const ::torch::nn::Module& module) {
  sources_->all.push_back(std::make_shared<ModuleSource>(std::move(prefix), module));
  return *this;
}

State& State::add(std::string prefix, ::torch::optim::Optimizer& optimizer, const ::torch::nn::Module* names) {
  sources_->all.push_back(optimizer_source(std::move(prefix), optimizer, names));
  return *this;
}

State& State::add(std::string name, std::int64_t& number) {
  sources_->all.push_back(std::make_shared<NumberSource<std::int64_t>>(std::move(name), number));
  return *this;
}

State& State::add(std::string name, double& number) {
  sources_->all.push_back(std::make_shared<NumberSource<double>>(std::move(name), number));
  return *this;
}

State& State::add(std::string name, at::Generator generator) {
  if (!generator.defined()) refuse(CKPT_INVALID, "generator '" + name + "' is undefined");
  sources_->all.push_back(std::make_shared<GeneratorSource>(std::move(name), std::move(generator)));
  return *this;
}

State& State::add_file(std::string path, std::string bytes) {
  sources_->files.emplace_back(std::move(path), std::move(bytes));
  return *this;
}

}  // namespace ckpt::torch
