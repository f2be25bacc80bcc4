// SPDX-License-Identifier: Apache-2.0
// Saves a state that torch_python_test.py knows: torch-writer STORE STEP.
#include <ckpt/torch.hpp>

#include <ATen/ATen.h>

#include <cstdio>
#include <exception>
#include <string>

int main(int count, char** words) {
  try {
    if (count != 3) return 2;
    ckpt::torch::SaverOptions options;
    options.store = words[1];
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
