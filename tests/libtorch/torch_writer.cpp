// SPDX-License-Identifier: Apache-2.0
// Saves a state that torch_python_test.py knows: torch-writer STORE STEP. Or tensors of these names, which all ranks
// hold, as one rank: torch-writer STORE STEP RANK WORLD_SIZE NAME...
#include <ckpt/torch.hpp>

#include <ATen/ATen.h>

#include <cstdio>
#include <exception>
#include <string>

namespace {

int save_shared(ckpt::torch::SaverOptions options, int count, char** words) {
  options.rank = static_cast<std::uint32_t>(std::stoul(words[3]));
  options.world_size = static_cast<std::uint32_t>(std::stoul(words[4]));
  options.replicated = {"*"};
  ckpt::torch::State state;
  for (int i = 5; i < count; ++i) state.add(words[i], at::full({3}, i, at::kFloat));
  ckpt::torch::Saver saver(options);
  saver.save(std::stoul(words[2]), state);
  saver.close();
  return 0;
}

}  // namespace

int main(int count, char** words) {
  try {
    if (count != 3 && count < 5) return 2;
    ckpt::torch::SaverOptions options;
    options.store = words[1];
    if (count > 3) return save_shared(options, count, words);
    ckpt::torch::Saver saver(options);
    const auto base = at::arange(24, at::kFloat).reshape({4, 6});
    std::int64_t step = std::stol(words[2]);
    double rate = 0.125;
    ckpt::torch::State state;
    state.add("base", base).add("view", base.t()).add("row", base[2]);
    state.add("half", at::arange(5, at::kBFloat16)).add("flags", at::ones({3}, at::kBool));
    state.add("empty", at::empty({0, 3})).add("step", step).add("rate", rate);
    state.add_file("notes.txt", "as it was\n");
    saver.save(static_cast<std::uint64_t>(step), state);
    saver.close();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "torch-writer: %s\n", error.what());
    return 2;
  }
}
