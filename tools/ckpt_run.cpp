// SPDX-License-Identifier: Apache-2.0
// ckpt-run: runs a training of many processes and brings it back from the newest good checkpoint when it fails.
#include <fmt/format.h>
#include <ckpt/run.hpp>

#include <algorithm>
#include <csignal>

#include "cli/program.hpp"
#include "cli/signals.hpp"
#include "run_metrics.hpp"
#include "run_options.hpp"
#include "run_report.hpp"

namespace ckpt::cli {
namespace {

/// What a job asked to end ends as: of that signal, as if there had been no one between.
GuardedEnd end_of(const RunReport& report) {
  switch (report.outcome) {
    case RunOutcome::finished: return {.status = exit_done};
    case RunOutcome::preempted: return {.signal = report.signal};
    case RunOutcome::killed:
      return report.signal == SIGINT ? GuardedEnd{.signal = SIGINT} : GuardedEnd{.status = exit_trouble};
    case RunOutcome::failed:
    case RunOutcome::no_progress: break;
  }
  const bool is_its_own = report.failure && report.failure->cause == RunCause::exit &&
                          report.failure->exit_status >= 1 && report.failure->exit_status <= 125;
  return {.status = is_its_own ? report.failure->exit_status : exit_trouble};
}

GuardedEnd supervise_and_report(Program& program, RunRequest& request, const Guarded& guarded) {
  request.run.signal_fd = guarded.signal_fd;
  request.run.lifeline_fd = guarded.lifeline_fd;
  Report report = program.report("ckpt-run/1");
  RunReporter reporter(program.messages(),
                       RunMetrics(program.metrics_file().value_or(std::string()), request.run.store));
  try {
    report.header({{"store", request.run.store}});
    program.output().flush();
    const RunReport ran = supervise(request.run, reporter);
    reporter.finish(ran);
    put_run(report, ran);
    program.output().close();
    return end_of(ran);
  } catch (const Error& error) {
    program.messages().error(error);
    return {.status = exit_status_of(error.code())};
  } catch (const std::exception& error) {
    program.messages().error(error.what());
    return {.status = exit_trouble};
  }
}

int body(Program& program) {
  auto request = parse_run_request(program);
  if (!request) return exit_done;
  const GuardedEnd end =
      guard(request->signals, [&](const Guarded& guarded) { return supervise_and_report(program, *request, guarded); });
  if (end.signal == 0) return end.status;
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, end.signal);
  sigprocmask(SIG_UNBLOCK, &blocked, nullptr);
  if (std::ranges::find(request->signals, end.signal) != request->signals.end()) {
    raise_again(end.signal);
    // The first process of a container doesn't die of its own signals: this is what a shell makes of such a death.
    return 128 + end.signal;
  }
  program.messages().error(fmt::format("the process that looks after the ranks was killed by signal {}", end.signal));
  return exit_trouble;
}

}  // namespace
}  // namespace ckpt::cli

int main(int argc, char** argv) {
  using namespace ckpt::cli;
  return run({.name = "ckpt-run",
              .synopsis = {"[options] --store=STORE -- COMMAND [ARG...]"},
              .summary = "Runs a training of many processes. When it fails, it's started again from the newest good "
                         "checkpoint of STORE.",
              .exits = {{"0", "all ranks ended with 0"},
                        {"1-125", "the status of the rank that it was given up for"},
                        {"2", "trouble; or that rank died of a signal or of silence"},
                        {"75", "temporary: the store does not answer; try again"},
                        {"signal", "asked to end: the last save is durable, or a warning says so"}}},
             argc, argv, body);
}
