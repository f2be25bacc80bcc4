// SPDX-License-Identifier: Apache-2.0
// What LibTorch's optimizers keep: a struct of their own for each parameter, and one of options for each group. The
// fields are listed here, once, for saving and loading. An optimizer that isn't known serialises itself.
#include "torch/checked.hpp"
#include "torch/state_sources.hpp"

#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <torch/optim.h>
#include <torch/serialize/archive.h>

#include <cstring>
#include <sstream>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <unordered_map>
#include <utility>

namespace ckpt::torch {
namespace {

namespace optim = ::torch::optim;

template <class S, class Visit>
void fields_of_adam(S& s, Visit& visit) {
  visit("step", s.step());
  visit("exp_avg", s.exp_avg());
  visit("exp_avg_sq", s.exp_avg_sq());
  visit("max_exp_avg_sq", s.max_exp_avg_sq());
}
template <class O, class Visit>
void options_of_adam(O& o, Visit& visit) {
  visit("lr", o.lr());
  visit("beta1", std::get<0>(o.betas()));
  visit("beta2", std::get<1>(o.betas()));
  visit("eps", o.eps());
  visit("weight_decay", o.weight_decay());
  visit("amsgrad", o.amsgrad());
}

struct AdamKind {
  using ParamState = optim::AdamParamState;
  using Options = optim::AdamOptions;
  template <class Visit>
  static void state(ParamState& s, Visit visit) {
    fields_of_adam(s, visit);
  }
  template <class Visit>
  static void options(Options& o, Visit visit) {
    options_of_adam(o, visit);
  }
};
struct AdamWKind {
  using ParamState = optim::AdamWParamState;
  using Options = optim::AdamWOptions;
  template <class Visit>
  static void state(ParamState& s, Visit visit) {
    fields_of_adam(s, visit);
  }
  template <class Visit>
  static void options(Options& o, Visit visit) {
    options_of_adam(o, visit);
  }
};
struct SgdKind {
  using ParamState = optim::SGDParamState;
  using Options = optim::SGDOptions;
  template <class Visit>
  static void state(ParamState& s, Visit visit) {
    visit("momentum_buffer", s.momentum_buffer());
  }
  template <class Visit>
  static void options(Options& o, Visit visit) {
    visit("lr", o.lr());
    visit("momentum", o.momentum());
    visit("dampening", o.dampening());
    visit("weight_decay", o.weight_decay());
    visit("nesterov", o.nesterov());
  }
};
struct RmspropKind {
  using ParamState = optim::RMSpropParamState;
  using Options = optim::RMSpropOptions;
  template <class Visit>
  static void state(ParamState& s, Visit visit) {
    visit("step", s.step());
    visit("square_avg", s.square_avg());
    visit("momentum_buffer", s.momentum_buffer());
    visit("grad_avg", s.grad_avg());
  }
  template <class Visit>
  static void options(Options& o, Visit visit) {
    visit("lr", o.lr());
    visit("alpha", o.alpha());
    visit("eps", o.eps());
    visit("weight_decay", o.weight_decay());
    visit("momentum", o.momentum());
    visit("centered", o.centered());
  }
};
struct AdagradKind {
  using ParamState = optim::AdagradParamState;
  using Options = optim::AdagradOptions;
  template <class Visit>
  static void state(ParamState& s, Visit visit) {
    visit("sum", s.sum());
    visit("step", s.step());
  }
  template <class Visit>
  static void options(Options& o, Visit visit) {
    visit("lr", o.lr());
    visit("lr_decay", o.lr_decay());
    visit("weight_decay", o.weight_decay());
    visit("initial_accumulator_value", o.initial_accumulator_value());
    visit("eps", o.eps());
  }
};

/// What the optimizer calls a parameter: a pointer, which versions before 2.2 spell out.
template <class Key>
Key key_of(const at::Tensor& parameter) {
  void* const address = parameter.unsafeGetTensorImpl();
  if constexpr (std::is_same_v<Key, std::string>) {
    std::ostringstream text;
    text << address;
    return text.str();
  } else {
    return address;
  }
}

template <class Kind>
class KnownOptimizer final : public Source {
 public:
  KnownOptimizer(std::string prefix, optim::Optimizer& optimizer, const ::torch::nn::Module* names)
      : prefix_(std::move(prefix)), optimizer_(optimizer), names_(names) {}

  void take(std::vector<Entry>& entries) override {
    each_parameter([&](const at::Tensor& parameter, const std::string& name) {
      const auto found = optimizer_.state().find(key_of<Key>(parameter));
      if (found == optimizer_.state().end() || found->second == nullptr) return;
      Kind::state(static_cast<ParamState&>(*found->second),
                  [&](const char* field, auto& value) { add(entries, name + "." + field, value); });
    });
    auto& groups = optimizer_.param_groups();
    for (std::size_t g = 0; g < groups.size(); ++g) {
      if (!groups[g].has_options()) continue;
      const std::string group = prefix_ + ".param_groups." + std::to_string(g) + ".";
      Kind::options(static_cast<typename Kind::Options&>(groups[g].options()),
                    [&](const char* field, auto& value) { add(entries, group + field, value); });
    }
  }

  void prepare(const StoredShapes& stored) override {
    const auto is_there = [&](const std::string& start) {
      const auto next = stored.lower_bound(start);
      return next != stored.end() && next->first.compare(0, start.size(), start) == 0;
    };
    bool any = false;
    bool none = true;
    each_parameter([&](const at::Tensor& parameter, const std::string& name) {
      any = true;
      const Key key = key_of<Key>(parameter);
      if (!is_there(name + ".")) {
        optimizer_.state().erase(key);
        return;
      }
      none = false;
      auto& state = optimizer_.state()[key];
      if (state == nullptr) state = std::make_unique<ParamState>();
      Kind::state(static_cast<ParamState&>(*state), [&](const char* field, auto& value) {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, at::Tensor>) {
          make(parameter, value, stored.find(name + "." + field), stored);
        }
      });
    });
    if (any && none && is_there(prefix_ + ".state.")) {
      refuse(CKPT_NOT_FOUND, "none of the parameters of optimizer '" + prefix_ + "' is in the checkpoint by its name");
    }
  }

 private:
  using ParamState = typename Kind::ParamState;
  using Key = typename std::decay_t<decltype(std::declval<optim::Optimizer&>().state())>::key_type;

  template <class Visit>
  void each_parameter(Visit&& visit) {
    std::unordered_map<const void*, std::string> known;
    if (names_ != nullptr) {
      for (const auto& parameter : names_->named_parameters())
        known[parameter.value().unsafeGetTensorImpl()] = parameter.key();
    }
    std::size_t number = 0;
    for (const auto& group : optimizer_.param_groups()) {
      for (const at::Tensor& parameter : group.params()) {
        const auto found = known.find(parameter.unsafeGetTensorImpl());
        visit(parameter, prefix_ + ".state." + (found == known.end() ? std::to_string(number) : found->second));
        ++number;
      }
    }
  }

  template <class Value>
  static void add(std::vector<Entry>& entries, std::string name, Value& value) {
    if constexpr (std::is_same_v<Value, at::Tensor>) {
      if (!value.defined()) return;
      Entry entry;
      entry.name = std::move(name);
      entry.tensor = value;
      entries.push_back(std::move(entry));
    } else {
      entries.push_back(number_entry(std::move(name), value));
    }
  }

  static void make(const at::Tensor& parameter, at::Tensor& value, StoredShapes::const_iterator found,
                   const StoredShapes& stored) {
    if (found == stored.end()) {
      value.reset();
    } else if (!value.defined()) {
      const at::Tensor like = parameter.detach();
      value = like.sizes() == at::IntArrayRef(found->second) ? at::zeros_like(like)
                                                             : at::zeros(found->second, like.options());
    }
  }

  std::string prefix_;
  optim::Optimizer& optimizer_;
  const ::torch::nn::Module* names_;
};

class UnknownOptimizer final : public Source {
 public:
  UnknownOptimizer(std::string prefix, optim::Optimizer& optimizer)
      : name_(std::move(prefix) + ".archive"), optimizer_(optimizer) {}

  void take(std::vector<Entry>& entries) override {
    ::torch::serialize::OutputArchive archive;
    optimizer_.save(archive);
    std::ostringstream stream;
    archive.save_to(stream);
    const std::string bytes = stream.str();
    Entry entry;
    entry.name = name_;
    entry.tensor = at::empty({static_cast<std::int64_t>(bytes.size())}, at::TensorOptions().dtype(at::kByte));
    std::memcpy(entry.tensor.data_ptr(), bytes.data(), bytes.size());
    entry.put = [this](const at::Tensor& loaded) {
      std::istringstream from(
          std::string(static_cast<const char*>(loaded.data_ptr()), static_cast<std::size_t>(loaded.numel())));
      ::torch::serialize::InputArchive input;
      input.load_from(from);
      optimizer_.load(input);
    };
    entries.push_back(std::move(entry));
  }

 private:
  std::string name_;
  optim::Optimizer& optimizer_;
};

}  // namespace

std::shared_ptr<Source> optimizer_source(std::string prefix, optim::Optimizer& optimizer,
                                         const ::torch::nn::Module* names) {
  const auto known = [&](auto fields) -> std::shared_ptr<Source> {
    return std::make_shared<KnownOptimizer<decltype(fields)>>(std::move(prefix), optimizer, names);
  };
  const std::type_info& kind = typeid(optimizer);  // a class derived from one of them may know more
  if (kind == typeid(optim::Adam)) return known(AdamKind{});
  if (kind == typeid(optim::AdamW)) return known(AdamWKind{});
  if (kind == typeid(optim::SGD)) return known(SgdKind{});
  if (kind == typeid(optim::RMSprop)) return known(RmspropKind{});
  if (kind == typeid(optim::Adagrad)) return known(AdagradKind{});
  return std::make_shared<UnknownOptimizer>(std::move(prefix), optimizer);
}

}  // namespace ckpt::torch
