// SPDX-License-Identifier: Apache-2.0
// ckpt-wait: waits until what was staged is durable; says nothing when it is.
#include <fmt/format.h>
#include <ckpt/address.hpp>
#include <ckpt/wait.hpp>

#include "cli/program.hpp"
#include "cli/worker.hpp"

namespace ckpt::cli {
namespace {

void declare(CommandLine& line, WaitOptions& wait) {
  line.section("How long and where");
  line.option(
      "--timeout", "SEC", "wait no longer than this (default: as long as it takes)",
      [&wait](const std::string& text) { wait.timeout_seconds = parse_duration(text); },
      [&wait] { return wait.timeout_seconds ? number_text(*wait.timeout_seconds) : std::string(); });
  line.option("--spool", "DIR", "look here too; may be repeated", wait.spools);
}

/// Says what isn't well, and gives the exit status.
int judge(Program& program, const std::string& store, const WaitReport& waited) {
  int status = exit_done;
  for (const WaitOutcome& outcome : waited.outcomes) {
    if (outcome.state == SaveState::durable) continue;
    const bool is_final = outcome.state == SaveState::failed || outcome.state == SaveState::skipped;
    program.messages().error(fmt::format("'{}' {}: {}", address_of(store, outcome.step),
                                         is_final ? to_string(outcome.state) : "isn't durable yet", outcome.reason));
    status = worse_of(status, is_final ? exit_trouble : exit_temporary);
  }
  return status;
}

int body(Program& program) {
  WaitOptions options;
  declare(program.line(), options);
  program.add_jobs_option();
  const auto operands = program.parse();
  if (!operands) return exit_done;
  options.what = parse_address(only_operand(program, *operands, "STORE[@STEP]"));
  const std::string& store = options.what.store;
  options.start_worker = [&](const std::string& spool) {
    start_worker({.store = store, .spool = spool, .jobs = program.jobs()});
  };

  const WaitReport waited = wait(options, program.monitor());
  Report report = program.report("ckpt-wait/1");
  report.header({{"address", operands->front()}});
  for (const WaitOutcome& outcome : waited.outcomes) {
    report.record({"outcome",
                   {{"address", address_of(store, outcome.step)},
                    {"step", outcome.step},
                    {"state", std::string(to_string(outcome.state))},
                    {"id", text_or_none(outcome.id)},
                    {"reason", text_or_none(outcome.reason)}}});
  }
  const int status = judge(program, store, waited);
  report.summary({{"timed_out", waited.timed_out}, {"seconds", waited.seconds}, {"exit_status", std::int64_t{status}}});
  return status;
}

}  // namespace
}  // namespace ckpt::cli

int main(int argc, char** argv) {
  using namespace ckpt::cli;
  return run({.name = "ckpt-wait",
              .synopsis = {"[options] STORE[@STEP]"},
              .summary = "Waits until what was staged is durable: all of it, or one step.",
              .exits = exit_table("durable", "")},
             argc, argv, body);
}
