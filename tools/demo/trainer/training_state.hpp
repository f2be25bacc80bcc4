// SPDX-License-Identifier: Apache-2.0
// What a checkpoint of the training holds, and under which names:
//
//     model.NAME                          parameters; those that are split over ranks as parts of the whole
//     optimizer.state.NAME.exp_avg        and exp_avg_sq: of the same shapes, and split alike
//     step, loss                          how many steps are behind, and the loss of the last
//
// As each tensor is known by its name, its whole shape and where a part begins in it, any number of ranks can load it,
// split in another way or not at all.
#pragma once

#include "model_parameters.hpp"
#include "process_groups.hpp"

#include <ckpt/torch_state.hpp>

#include <cstdint>

namespace trainer {

struct Progress {
  std::int64_t step = 0;  ///< that many are behind; it's also AdamW's
  double loss = 0;        ///< of the last, over the whole batch
};

/// All that this rank holds. Both are referred to.
[[nodiscard]] ckpt::torch::State state_to_load(const Parameters& parameters, Progress& progress);

/// This rank's share of it: what several ranks hold is written by one of them. Patterns in SaverOptions::replicated say
/// the same where every rank holds the same names; here those of another stage don't.
[[nodiscard]] ckpt::torch::State state_to_save(const Parameters& parameters, Progress& progress, const Place& place);

/// Of all parameters as wholes, bit for bit, the same on all ranks. Needs all ranks.
[[nodiscard]] std::uint64_t digest_of(const Options& options, const Parameters& parameters, const Place& place,
                                      const Group& model);

}  // namespace trainer
