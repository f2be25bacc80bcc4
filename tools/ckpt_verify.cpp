// SPDX-License-Identifier: Apache-2.0
// ckpt-verify: checks what is stored and names what is damaged; says nothing when all is well.
#include <fmt/format.h>
#include <ckpt/address.hpp>
#include <ckpt/verify.hpp>

#include <algorithm>
#include <chrono>
#include <ctime>

#include "cli/metrics_file.hpp"
#include "cli/program.hpp"
#include "peer_options.hpp"
#include "verify_report.hpp"

namespace ckpt::cli {
namespace {

struct Request {
  VerifyOptions verify;
  std::optional<std::string> rsh;
  bool quick = false;
  bool deep = false;
};

struct Totals {
  std::uint64_t checkpoints = 0, bytes = 0, damages = 0, non_finite = 0, not_committed = 0, failed = 0;
  bool complete = true;
};

void declare(CommandLine& line, Request& request) {
  VerifyOptions& verify = request.verify;
  line.section("How closely");
  line.flag("--quick", "sizes and the checksums of manifests and indexes only", request.quick);
  line.flag("--deep", "decode every block and check what comes out", request.deep);
  line.flag("--finite", "name tensors that hold NaN or Inf too; reads as --deep does", verify.finite);
  line.section("How much");
  line.option(
      "--sample", "PERCENT", "this share of the stored bytes only, at random",
      [&verify](const std::string& text) { verify.sample_percent = parse_percent(text); },
      [&verify] { return verify.sample_percent ? number_text(*verify.sample_percent) : std::string(); });
  line.option(
      "--budget", "TIME", "stop after TIME; the next run goes on there",
      [&verify](const std::string& text) { verify.budget_seconds = parse_duration(text); },
      [&verify] { return verify.budget_seconds ? number_text(*verify.budget_seconds) : std::string(); });
  line.option(
      "--bwlimit", "RATE", "read no more than this in a second",
      [&verify](const std::string& text) { verify.bytes_per_second = parse_size(text); },
      [&verify] { return std::to_string(verify.bytes_per_second); });
  line.section("What becomes of it");
  line.flag("--repair", "mend single flipped bits", verify.repair);
  line.option("--from", "STORE",
              "with --repair: a replica to ask, also HOST:STORE and rclone:REMOTE:PATH; may be repeated", verify.from);
  declare_rsh(line, request.rsh);
  line.option("--state", "FILE", "keep results in FILE, not in the store", verify.state_file);
}

void add_metrics(MetricsFile& metrics, const std::string& address, const VerifyReport& verified) {
  const std::string labels = MetricsFile::label("address", address);
  const auto gauge = [&](std::string_view name, std::string_view help, auto value) {
    metrics.gauge(fmt::format("ckpt_verify_{}", name), help, static_cast<double>(value), labels);
  };
  gauge("looked", "0 if it couldn't be looked at.", 1);
  gauge("last_run_timestamp_seconds", "When it was last looked at.", std::time(nullptr));
  gauge("intact", "1 if no damage is left and no value is non-finite.", verified.intact());
  gauge("complete", "0 if the budget ended the run early.", verified.complete);
  gauge("damages", "Damages found, also those repaired.", verified.damages.size());
  gauge("non_finite_tensors", "Tensors that hold NaN or Inf.", verified.non_finite.size());
  gauge("checkpoints", "Checkpoints looked at.", verified.checkpoints);
  gauge("bytes", "Bytes checked.", verified.bytes);
  gauge("seconds", "How long it took.", verified.seconds);
}

void add_to(Totals& totals, const VerifyReport& verified) {
  totals.checkpoints += verified.checkpoints;
  totals.bytes += verified.bytes;
  totals.damages += verified.damages.size();
  totals.non_finite += verified.non_finite.size();
  totals.not_committed += verified.not_committed.size();
  totals.complete = totals.complete && verified.complete;
}

int body(Program& program) {
  Request request;
  declare(program.line(), request);
  program.add_jobs_option();
  program.add_metrics_option();
  const auto operands = program.parse();
  if (!operands) return exit_done;
  if (operands->empty()) throw usage_error(program, "no STORE[@STEP] given");
  if (!request.verify.state_file.empty() && operands->size() > 1) {
    throw usage_error(program, "--state is for one STORE: each has its own results");
  }
  if (request.quick && (request.deep || request.verify.finite))
    throw usage_error(program, "--quick or --deep, not both");
  VerifyOptions& options = request.verify;
  options.level = request.quick ? VerifyLevel::quick : request.deep ? VerifyLevel::deep : VerifyLevel::stored;
  options.jobs = program.jobs();
  if (!options.from.empty() && !options.repair) throw usage_error(program, "--from needs --repair");
  if (!options.from.empty()) options.peer.rsh = remote_shell(request.rsh);
  std::vector<Address> addresses;
  for (const std::string& operand : *operands) addresses.push_back(parse_address(operand));

  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const std::optional<double> budget = options.budget_seconds;
  Report report = program.report("ckpt-verify/1");
  report.header({});
  MetricsFile metrics;
  Totals totals;
  int status = exit_done;
  for (const Address& address : addresses) {
    options.what = address;
    const double spent = std::chrono::duration<double>(Clock::now() - begin).count();
    if (budget) options.budget_seconds = std::max(0.0, *budget - spent);
    try {
      const VerifyReport verified = verify(options, program.monitor());
      put_result(program, report, address, verified);
      add_metrics(metrics, to_string(address), verified);
      add_to(totals, verified);
      status = worse_of(status, verified.intact() ? exit_done : exit_no);
      for (const std::string& failure : verified.failures) {
        program.messages().error(failure);
        ++totals.failed;
        status = worse_of(status, exit_trouble);
      }
    } catch (const Error& error) {
      if (error.code() == Errc::interrupted) throw;
      program.messages().error(error);
      ++totals.failed;
      metrics.gauge("ckpt_verify_looked", "0 if it couldn't be looked at.", 0,
                    MetricsFile::label("address", to_string(address)));
      status = worse_of(status, exit_status_of(error.code()));
    }
  }
  report.summary({{"intact", status == exit_done},
                  {"complete", totals.complete},
                  {"checkpoints", totals.checkpoints},
                  {"bytes", totals.bytes},
                  {"damages", totals.damages},
                  {"non_finite", totals.non_finite},
                  {"not_committed", totals.not_committed},
                  {"failed", totals.failed},
                  {"exit_status", std::int64_t{status}}});
  if (program.metrics_file()) metrics.write(*program.metrics_file());
  return status;
}

}  // namespace
}  // namespace ckpt::cli

int main(int argc, char** argv) {
  using namespace ckpt::cli;
  return run({.name = "ckpt-verify",
              .synopsis = {"[options] STORE[@STEP]..."},
              .summary = "Checks stored checkpoints and names what is damaged. Prints nothing when all is well.",
              .exits = exit_table("intact, or all of it mended", "damaged, or with --finite a value that isn't")},
             argc, argv, body);
}
