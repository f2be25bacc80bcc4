// SPDX-License-Identifier: Apache-2.0
// ckpt-bench: measures what checkpoints cost on this machine, and says what follows from that.
#include <ckpt/address.hpp>
#include <ckpt/bench.hpp>
#include <ckpt/diff.hpp>

#include "bench_options.hpp"
#include "bench_report.hpp"
#include "bench_worker_host.hpp"
#include "cli/program.hpp"

namespace ckpt::cli {
namespace {

int body(Program& program) {
  BenchRequest request;
  declare_bench_options(program.line(), request);
  program.add_jobs_option();
  const auto operands = program.parse();
  if (!operands) return exit_done;
  const Address address = parse_address(only_operand(program, *operands, "STORE"));
  if (address.selector.kind != Selector::Kind::none)
    throw usage_error(program, "a STORE without a step is worked in: a directory that isn't there yet");
  request.bench.store = address.store;
  request.bench.jobs = program.jobs();

  BenchWorkerHost workers;
  workers.jobs = program.jobs();
  const BenchReport measured = bench(request.bench, workers, program.monitor());
  Report report = program.report("ckpt-bench/1");
  put_bench(report, measured);
  if (!request.plot.empty()) write_text_file(request.plot, draw_bench(measured));
  return exit_done;
}

}  // namespace
}  // namespace ckpt::cli

int main(int argc, char** argv) {
  using namespace ckpt::cli;
  return run(
      {.name = "ckpt-bench",
       .synopsis = {"[options] STORE"},
       .summary = "Measures what a checkpoint costs on this machine and its storage, in each way of saving, under "
                  "a loop that computes. STORE is made for it, and removed.",
       .exits = exit_table("measured", "")},
      argc, argv, body);
}
