// SPDX-License-Identifier: Apache-2.0
#include "run_metrics.hpp"

#include <fmt/format.h>

#include "cli/metrics_file.hpp"

namespace ckpt::cli {
namespace {

double number(std::uint64_t value) { return static_cast<double>(value); }

}  // namespace

void RunMetrics::write(const RunState& state) const {
  if (path_.empty()) return;
  MetricsFile file;
  const std::string store = MetricsFile::label("store", store_);
  file.gauge("ckpt_run_attempt", "The attempt that runs.", number(state.attempt), store);
  file.gauge("ckpt_run_world_size", "Ranks of the job.", state.world_size, store);
  for (const RunCause cause : {RunCause::exit, RunCause::signal, RunCause::out_of_memory, RunCause::silence,
                               RunCause::slow_start, RunCause::node, RunCause::resize}) {
    const auto found = state.restarts.find(cause);
    file.counter("ckpt_run_restarts_total", "Restarts by what caused them.",
                 found == state.restarts.end() ? 0 : number(found->second),
                 store + "," + MetricsFile::label("cause", to_string(cause)));
  }
  file.counter("ckpt_run_lost_seconds_total",
               "To each restart after a failure, from the last durable checkpoint or restart before.",
               state.lost_seconds, store);
  file.counter("ckpt_run_steps_redone_total", "Steps that were told of and not durable at a failure.",
               number(state.steps_redone), store);
  if (state.durable_step)
    file.gauge("ckpt_run_durable_step", "The newest durable checkpoint.", number(*state.durable_step), store);
  if (state.durable_age_seconds)
    file.gauge("ckpt_run_durable_age_seconds", "Since the newest checkpoint was seen to be durable.",
               *state.durable_age_seconds, store);
  if (state.interval_seconds)
    file.gauge("ckpt_run_interval_seconds", "How often the ranks are asked to save.", *state.interval_seconds, store);
  for (const RunRank& rank : state.ranks) {
    const std::string labels = store + "," + MetricsFile::label("rank", std::to_string(rank.rank));
    if (rank.step) file.gauge("ckpt_run_step", "The last step that a rank told of.", number(*rank.step), labels);
    if (rank.loss) file.gauge("ckpt_run_loss", "The last loss that a rank told of.", *rank.loss, labels);
    if (rank.silent_seconds)
      file.gauge("ckpt_run_silent_seconds", "Since a rank's last heartbeat.", *rank.silent_seconds, labels);
  }
  file.write(path_);
}

}  // namespace ckpt::cli
