// SPDX-License-Identifier: Apache-2.0
// ckpt-prune: removes checkpoints by a policy, pins and unpins them; says nothing when all is well.
#include <fmt/format.h>
#include <ckpt/address.hpp>
#include <ckpt/prune.hpp>

#include <ctime>

#include "cli/metrics_file.hpp"
#include "cli/program.hpp"
#include "prune_options.hpp"
#include "prune_report.hpp"

namespace ckpt::cli {
namespace {

void write_metrics(const std::string& path, const std::string& store, const PruneReport& pruned, int status) {
  MetricsFile metrics;
  const std::string labels = MetricsFile::label("store", store);
  const auto gauge = [&](std::string_view name, std::string_view help, auto value) {
    metrics.gauge(fmt::format("ckpt_prune_{}", name), help, static_cast<double>(value), labels);
  };
  gauge("last_run_timestamp_seconds", "When it last ran.", std::time(nullptr));
  gauge("exit_status", "How it ended.", status);
  gauge("removed_checkpoints", "Checkpoints removed.", pruned.removed);
  gauge("removed_bytes", "Stored bytes of these.", pruned.removed_bytes);
  gauge("kept_checkpoints", "Checkpoints that are there.", pruned.decisions.size() - pruned.removed);
  gauge("failures", "What was asked for and couldn't be done.", pruned.failures.size());
  gauge("seconds", "How long it took.", pruned.seconds);
  metrics.write(path);
}

int body(Program& program) {
  PruneOptions options;
  declare_prune_options(program.line(), options);
  program.add_jobs_option();
  program.add_metrics_option();
  const auto operands = program.parse();
  if (!operands) return exit_done;
  const Address address = parse_address(only_operand(program, *operands, "STORE"));
  if (address.selector.kind != Selector::Kind::none) {
    throw usage_error(program, "a whole STORE is pruned: say which step with --remove=STEP");
  }
  options.store = address.store;
  options.jobs = program.jobs();

  Report report = program.report("ckpt-prune/1");
  report.header({{"store", options.store}, {"dry_run", options.dry_run}});
  const PruneReport pruned = prune(options, program.monitor());
  put_decisions(program, report, options, pruned);
  int status = exit_done;
  for (const PruneFailure& failure : pruned.failures) {
    program.messages().error(failure.message);
    status = worse_of(status, failure.temporary ? exit_temporary : exit_trouble);
  }
  report.summary({{"removed", pruned.removed},
                  {"removed_bytes", pruned.removed_bytes},
                  {"sets", pruned.sets},
                  {"failed", std::uint64_t{pruned.failures.size()}},
                  {"exit_status", std::int64_t{status}}});
  if (program.metrics_file() && !options.dry_run) write_metrics(*program.metrics_file(), options.store, pruned, status);
  return status;
}

}  // namespace
}  // namespace ckpt::cli

int main(int argc, char** argv) {
  using namespace ckpt::cli;
  return run({.name = "ckpt-prune",
              .synopsis = {"[options] STORE"},
              .summary = "Removes checkpoints by a policy; the newest good one always stays.",
              .exits = exit_table("done", "")},
             argc, argv, body);
}
