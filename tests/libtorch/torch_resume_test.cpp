// SPDX-License-Identifier: Apache-2.0
// A training that is resumed goes on as if nothing had been: losses and state are the same to the bit.
#include <torch/nn.h>
#include <torch/optim.h>
#include <torch/serialize.h>
#include <torch/utils.h>

#include "torch_support.hpp"

#include <ATen/CPUGeneratorImpl.h>

#include <map>
#include <memory>
#include <vector>

using namespace torch_test;

namespace {

namespace nn = ::torch::nn;
namespace optim = ::torch::optim;

/// With dropout, which draws random numbers, and running statistics.
struct Net : nn::Module {
  Net() {
    first = register_module("first", nn::Linear(12, 24));
    norm = register_module("norm", nn::BatchNorm1d(24));
    dropout = register_module("dropout", nn::Dropout(0.3));
    last = register_module("last", nn::Linear(24, 3));
    last->weight.set_data(last->weight.detach().clone());
  }
  at::Tensor forward(const at::Tensor& x) { return last(dropout(at::relu(norm(first(x))))); }

  nn::Linear first{nullptr};
  nn::BatchNorm1d norm{nullptr};
  nn::Dropout dropout{nullptr};
  nn::Linear last{nullptr};
};

struct OwnAdam : optim::Adam {
  using optim::Adam::Adam;
};

using MakeOptimizer = std::unique_ptr<optim::Optimizer> (*)(const std::vector<at::Tensor>&);

struct Training {
  explicit Training(MakeOptimizer make) {
    ::torch::manual_seed(7);
    net = std::make_shared<Net>();
    optimizer = make(net->parameters());
    state.add("model", *net)
        .add("optimizer", *optimizer, net.get())
        .add("step", step)
        .add("generator", at::detail::getDefaultCPUGenerator());
  }

  double once() {
    const at::Tensor x = at::randn({16, 12});
    const at::Tensor y = at::randn({16, 3});
    const auto loss_of = [&] {
      optimizer->zero_grad();
      at::Tensor loss = at::mse_loss(net->forward(x), y);
      loss.backward();
      return loss;
    };
    const at::Tensor loss = optimizer->step(loss_of);
    ++step;
    return loss.item<double>();
  }

  std::map<std::string, at::Tensor> tensors() const {
    std::map<std::string, at::Tensor> all;
    for (const auto& item : net->named_parameters()) all[item.key()] = item.value().detach().clone();
    for (const auto& item : net->named_buffers()) all[item.key()] = item.value().clone();
    return all;
  }

  std::shared_ptr<Net> net;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::int64_t step = 0;
  State state;
};

void check_resume(MakeOptimizer make) {
  const unit_test::Scratch scratch;
  std::vector<double> losses;
  Training whole(make);
  {
    Saver saver(options_for(scratch / "runs"));
    while (whole.step < 20) {
      if (whole.step == 10) (void)saver.save(10, whole.state);
      losses.push_back(whole.once());
    }
    (void)saver.save(20, whole.state);
    saver.close();
  }

  Training resumed(make);
  for (int i = 0; i < 3; ++i) (void)resumed.once();  // whatever it was before
  Loader(scratch / "runs", "10").load_into(resumed.state);
  REQUIRE(resumed.step == 10);
  while (resumed.step < 20) {
    const auto at = static_cast<std::size_t>(resumed.step);
    CHECK(resumed.once() == losses[at]);
  }
  const auto expected = whole.tensors();
  for (const auto& [name, tensor] : resumed.tensors()) CHECK_MESSAGE(same(tensor, expected.at(name)), name);

  // So it does in an optimizer that hasn't made a step; and all of the last state is the same.
  Training fresh(make);
  Loader(scratch / "runs", "10").load_into(fresh.state);
  while (fresh.step < 20) (void)fresh.once();
  save_one(scratch / "again", 20, fresh.state);
  const Loader first(scratch / "runs");
  const Loader second(scratch / "again");
  CHECK(first.names() == second.names());
  for (const std::string& name : first.names()) {
    if (name == "optimizer.archive") continue;  // it has addresses in it
    CHECK_MESSAGE(same(first.load(name), second.load(name)), name);
  }
}

}  // namespace

TEST_CASE("Adam goes on to the bit") {
  check_resume([](const std::vector<at::Tensor>& parameters) -> std::unique_ptr<optim::Optimizer> {
    return std::make_unique<optim::Adam>(parameters, optim::AdamOptions(0.01));
  });
}

TEST_CASE("AdamW with amsgrad goes on to the bit") {
  check_resume([](const std::vector<at::Tensor>& parameters) -> std::unique_ptr<optim::Optimizer> {
    return std::make_unique<optim::AdamW>(parameters, optim::AdamWOptions(0.01).amsgrad(true));
  });
}

TEST_CASE("SGD with momentum goes on to the bit") {
  check_resume([](const std::vector<at::Tensor>& parameters) -> std::unique_ptr<optim::Optimizer> {
    return std::make_unique<optim::SGD>(parameters, optim::SGDOptions(0.05).momentum(0.9));
  });
}

TEST_CASE("RMSprop goes on to the bit") {
  check_resume([](const std::vector<at::Tensor>& parameters) -> std::unique_ptr<optim::Optimizer> {
    return std::make_unique<optim::RMSprop>(parameters, optim::RMSpropOptions(0.01).centered(true).momentum(0.5));
  });
}

TEST_CASE("Adagrad goes on to the bit") {
  check_resume([](const std::vector<at::Tensor>& parameters) -> std::unique_ptr<optim::Optimizer> {
    return std::make_unique<optim::Adagrad>(parameters, optim::AdagradOptions(0.05));
  });
}

TEST_CASE("an optimizer that isn't known, and serialises itself, goes on to the bit") {
  check_resume([](const std::vector<at::Tensor>& parameters) -> std::unique_ptr<optim::Optimizer> {
    return std::make_unique<OwnAdam>(parameters, optim::AdamOptions(0.01));
  });
}

TEST_CASE("an optimizer's state has the names of parameters, and its options are stored") {
  const unit_test::Scratch scratch;
  Training training([](const std::vector<at::Tensor>& parameters) -> std::unique_ptr<optim::Optimizer> {
    return std::make_unique<optim::Adam>(parameters, optim::AdamOptions(0.01));
  });
  (void)training.once();
  save_one(scratch / "a", 1, training.state);
  const Loader loader(scratch / "a");
  CHECK(loader.shape("optimizer.state.first.weight.exp_avg") == std::vector<std::int64_t>{24, 12});
  CHECK(loader.load("optimizer.state.norm.bias.step").item<std::int64_t>() == 1);
  CHECK(loader.load("optimizer.param_groups.0.lr").item<double>() == 0.01);
  CHECK(loader.load("model.norm.num_batches_tracked").item<std::int64_t>() == 1);

  // Under other names nothing would be found: that's no optimizer without a state.
  State unnamed;
  unnamed.add("optimizer", *training.optimizer);
  CHECK(failure_of([&] { loader.load_into(unnamed); }).code() == CKPT_NOT_FOUND);
}

TEST_CASE("an optimizer is as it was before its first step") {
  const unit_test::Scratch scratch;
  const MakeOptimizer make = [](const std::vector<at::Tensor>& parameters) -> std::unique_ptr<optim::Optimizer> {
    return std::make_unique<optim::Adam>(parameters, optim::AdamOptions(0.01));
  };
  Training training(make);
  save_one(scratch / "a", 0, training.state);
  const double first = training.once();
  const double second = training.once();
  Loader(scratch / "a").load_into(training.state);
  CHECK(training.optimizer->state().empty());
  CHECK(training.once() == first);
  CHECK(training.once() == second);
}
