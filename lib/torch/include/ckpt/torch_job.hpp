// SPDX-License-Identifier: Apache-2.0
/// What ckpt-run tells the ranks that it starts (torchrun tells a part of it), for a trainer that wants to know:
///
///     const auto job = ckpt::torch::Job::from_environment();
///     if (job.resume_step) ckpt::torch::Loader(job.store, std::to_string(*job.resume_step)).load_into(state);
///     ckpt::torch::Saver saver(job.saver_options());
///     while (...) {
///       ...
///       const ckpt_request request = saver.step(step);
///       if (request != CKPT_REQUEST_NONE) saver.save(step, state);
///       if (request == CKPT_REQUEST_STOP) break;
///     }
///     saver.close();
#pragma once

#include <ckpt/torch_error.hpp>
#include <ckpt/torch_saver.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace ckpt::torch {

/// Plain values. Without a supervisor they're those of a job of one rank.
struct CKPT_TORCH_API Job {
  std::string store;                         ///< CKPT_STORE; empty: none was named
  std::uint32_t rank = 0;                    ///< RANK
  std::uint32_t world_size = 1;              ///< WORLD_SIZE
  std::uint32_t local_rank = 0;              ///< LOCAL_RANK: among those of this node
  std::uint32_t local_world_size = 1;        ///< LOCAL_WORLD_SIZE
  std::optional<std::uint64_t> attempt;      ///< CKPT_ATTEMPT: this life of the job
  std::string resume;                        ///< CKPT_RESUME: STORE@STEP to go on from; empty: begin from zero
  std::optional<std::uint64_t> resume_step;  ///< the step of that
  std::uint64_t resumed_from = CKPT_UNSET;   ///< the same; 0 if CKPT_RESUME is set and empty
  std::optional<double> interval;            ///< CKPT_INTERVAL: seconds between saves, which Saver::step() asks for

  /// Throws Error (CKPT_INVALID), naming the variable, if one is malformed. One that's empty counts as not set.
  static Job from_environment();

  /// The defaults, with where and as whom to save. Of earlier lives, what is newer than the step that this one begins
  /// from is retired by its first save: all, if that's zero.
  [[nodiscard]] SaverOptions saver_options() const;
};

}  // namespace ckpt::torch
