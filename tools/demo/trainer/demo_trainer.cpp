// SPDX-License-Identifier: Apache-2.0
// A trainer that survives: a small language model in C++ over LibTorch, trained by the ranks that ckpt-run starts, with
// data, tensor and pipeline parallelism. How it uses ckpt is in training.cpp and training_state.cpp.
#include "trainer_options.hpp"
#include "training.hpp"

#include <ckpt/torch.hpp>

#include <cstdio>
#include <exception>
#include <string>

namespace {

int failed(int status, const std::string& what) {
  std::fprintf(stderr, "demo-trainer: %s\n", what.c_str());
  return status;
}

int run(int count, char** words) {
  const auto options = trainer::parse_options(count, words);
  if (!options) return 0;
  const auto job = ckpt::torch::Job::from_environment();
  const std::string rank = job.world_size == 1 ? "" : "rank " + std::to_string(job.rank) + ": ";
  try {
    trainer::Training(*options, job).run();
    return 0;
  } catch (const trainer::NotFinite& error) {
    return failed(3, rank + error.what());
  } catch (const std::exception& error) {
    return failed(1, rank + error.what());
  }
}

}  // namespace

int main(int count, char** words) {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // each line when it's said, into files too
  try {
    const int status = run(count, words);
    return std::fflush(stdout) == 0 ? status : failed(2, "cannot write to stdout");
  } catch (const trainer::UsageError& error) {
    return failed(2, std::string(error.what()) + "\nTry 'demo-trainer --help'");
  } catch (const std::exception& error) {
    return failed(1, error.what());
  }
}
