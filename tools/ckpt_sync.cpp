// SPDX-License-Identifier: Apache-2.0
// ckpt-sync: keeps stores alike, moving only what the other side lacks.
#include <fmt/format.h>
#include <unistd.h>
#include <ckpt/address.hpp>
#include <ckpt/sync.hpp>

#include "cli/program.hpp"
#include "sync_options.hpp"
#include "sync_report.hpp"

namespace ckpt::cli {
namespace {

int write_stream(Program& program, const SyncRequest& request) {
  if (isatty(STDOUT_FILENO) != 0) throw usage_error(program, "a stream isn't written to a terminal");
  SyncReporter reporter(program, nullptr, request);
  SyncStreamOptions options{.store = request.sync.sources.front(),
                            .which = request.sync.which,
                            .have = request.have,
                            .fd = STDOUT_FILENO,
                            .peer = request.sync.peer};
  (void)write_sync_stream(options, reporter);
  return exit_done;
}

int read_stream(Program& program, const SyncRequest& request) {
  Report report = program.report("ckpt-sync/1");
  report.header({{"source", "-"}});
  SyncReporter reporter(program, &report, request);
  const std::uint64_t count = read_sync_stream(request.sync.destinations.front(), request.sync.replace, STDIN_FILENO,
                                               request.sync.peer, reporter);
  report.summary({{"checkpoints", count}});
  return exit_done;
}

int sync_stores(Program& program, const SyncRequest& request) {
  Report report = program.report("ckpt-sync/1");
  report.header({{"source", request.source_text}, {"dry_run", request.sync.dry_run}});
  SyncReporter reporter(program, &report, request);
  if (request.watch) return reporter.finish(follow({.sync = request.sync, .until_pid = request.until_pid}, reporter));
  const SyncReport synced = sync(request.sync, reporter);
  return reporter.finish(synced);
}

int body(Program& program) {
  const auto request = parse_sync_request(program);
  if (!request) return exit_done;
  if (request->server) {
    serve_sync(request->sync.destinations.front(), STDIN_FILENO, STDOUT_FILENO, request->sync.peer, program.monitor());
    return exit_done;
  }
  if (request->sync.destinations.front() == "-") return write_stream(program, *request);
  if (request->sync.sources.front() == "-") return read_stream(program, *request);
  return sync_stores(program, *request);
}

}  // namespace
}  // namespace ckpt::cli

int main(int argc, char** argv) {
  using namespace ckpt::cli;
  return run({.name = "ckpt-sync",
              .synopsis = {"[options] SRC[@STEP] DST...", "[options] --gather SRC... DST",
                           "[options] SRC[@STEP] - | ... ckpt-sync [options] - DST"},
              .summary = "Brings stores what they lack of another. SRC and DST are STORE, "
                         "[USER@]HOST:STORE or rclone:REMOTE:PATH.",
              .exits = exit_table("enough destinations hold durably all that was to be there", "")},
             argc, argv, body);
}
