// SPDX-License-Identifier: Apache-2.0
// One rank of the training: connects to the others, resumes, makes steps, saves when it's time or when asked.
#pragma once

#include "language_model.hpp"
#include "model_parameters.hpp"
#include "process_groups.hpp"
#include "trainer_options.hpp"
#include "training_state.hpp"
#include "training_text.hpp"

#include <ckpt/torch.hpp>

#include <stdexcept>

namespace trainer {

/// The loss isn't finite: to go on would spoil the parameters.
struct NotFinite : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Training {
 public:
  /// Waits for all ranks, and loads what is to be resumed from.
  Training(const Options& options, const ckpt::torch::Job& job);

  /// Returns after the last step, or when ckpt-run asked to stop; all that was saved is safe on this rank.
  void run();

 private:
  void step();
  void report(const char* how) const;

  Options options_;
  ckpt::torch::Job job_;
  Place place_;
  Text text_;
  Groups groups_;
  Parameters parameters_;
  LanguageModel model_;
  Progress progress_;
};

}  // namespace trainer
