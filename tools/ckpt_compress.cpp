// SPDX-License-Identifier: Apache-2.0
// ckpt-compress: encodes committed checkpoints anew, smaller or faster to read; says nothing when all is well.
#include <fmt/format.h>
#include <ckpt/address.hpp>
#include <ckpt/compress.hpp>

#include <algorithm>
#include <ctime>

#include "cli/metrics_file.hpp"
#include "cli/program.hpp"
#include "compress_options.hpp"
#include "compress_report.hpp"

namespace ckpt::cli {
namespace {

constexpr const char* report_schema = "ckpt-compress/1";

void write_metrics(const std::string& path, const std::string& store, const CompressReport& done, int status) {
  MetricsFile metrics;
  const std::string labels = MetricsFile::label("store", store);
  std::uint64_t encoded = 0;
  std::uint64_t before = 0;
  std::uint64_t after = 0;
  for (const CompressedCheckpoint& one : done.checkpoints) {
    encoded += one.action == CompressAction::encoded ? 1U : 0U;
    before += one.stored_before;
    after += one.stored_after;
  }
  const auto gauge = [&](std::string_view name, std::string_view help, auto value) {
    metrics.gauge(fmt::format("ckpt_compress_{}", name), help, static_cast<double>(value), labels);
  };
  gauge("last_run_timestamp_seconds", "When it last ran.", std::time(nullptr));
  gauge("exit_status", "How it ended.", status);
  gauge("encoded_checkpoints", "Checkpoints encoded anew.", encoded);
  gauge("stored_bytes_before", "Stored bytes of those looked at, before.", before);
  gauge("stored_bytes_after", "The same, after.", after);
  gauge("seconds", "How long it took.", done.seconds);
  metrics.write(path);
}

int run_filter(Program& program, const CompressOptions& given) {
  if (given.base != BaseChoice::automatic || given.newest_full || given.across_ranks || given.rebase ||
      given.older_than_seconds || given.dry_run || !given.lossy.empty() || program.metrics_file()) {
    throw usage_error(program, "'-' is one container, without a store: only --encode, --level, --max-chain and --jobs");
  }
  if (program.format() != Format::human) throw usage_error(program, "'-' leaves no place for a report");
  if (is_terminal(1)) {
    throw Error(Errc::invalid_argument, "standard output is a terminal: nothing is written to it")
        .with_hint("ckpt-compress - <OLD >NEW");
  }
  const CompressStreamOptions options{
      .encode = given.encode, .level = given.level, .max_chain = given.max_chain, .jobs = program.jobs()};
  const CompressStreamReport done = compress_stream(options, program.monitor());
  program.messages().note(fmt::format("{} to {}", human_bytes(done.stored_before), human_bytes(done.stored_after)));
  return exit_done;
}

/// All operands name one store: they're done in an order that follows from what they depend on.
void take_store(Program& program, CompressOptions& options, const std::vector<std::string>& operands) {
  bool whole = false;
  for (const std::string& operand : operands) {
    if (operand == "-") throw usage_error(program, "'-' stands alone");
    const Address address = parse_address(operand);
    if (options.store.empty()) options.store = address.store;
    if (address.store != options.store) {
      throw usage_error(program, fmt::format("'{}' is in another store than '{}'", operand, operands.front()));
    }
    whole = whole || address.selector.kind == Selector::Kind::none;
    options.which.push_back(address.selector);
  }
  if (whole) options.which.clear();
}

int body(Program& program) {
  CompressOptions options;
  declare(program.line(), options);
  program.add_jobs_option();
  program.add_metrics_option();
  const auto operands = program.parse();
  if (!operands) return exit_done;
  if (operands->empty()) throw usage_error(program, "no STORE[@STEP] given");
  if (operands->size() == 1 && operands->front() == "-") return run_filter(program, options);
  take_store(program, options, *operands);
  options.jobs = program.jobs();

  Report report = program.report(report_schema);
  report.header({{"store", options.store}, {"dry_run", options.dry_run}});
  const CompressReport done = compress(options, program.monitor());
  put_checkpoints(program, report, options, done);
  const int status = put_failures(program, options, done);
  const auto count = [&](CompressAction action) {
    return static_cast<std::uint64_t>(std::count_if(done.checkpoints.begin(), done.checkpoints.end(),
                                                    [&](const auto& one) { return one.action == action; }));
  };
  std::uint64_t before = 0;
  std::uint64_t after = 0;
  for (const CompressedCheckpoint& one : done.checkpoints) {
    before += one.stored_before;
    after += one.stored_after;
  }
  report.summary({{"encoded", count(CompressAction::encoded)},
                  {"skipped", count(CompressAction::skipped)},
                  {"failed", count(CompressAction::failed)},
                  {"stored_before", before},
                  {"stored_after", after},
                  {"exit_status", std::int64_t{status}}});
  if (program.metrics_file() && !options.dry_run) write_metrics(*program.metrics_file(), options.store, done, status);
  return status;
}

}  // namespace
}  // namespace ckpt::cli

int main(int argc, char** argv) {
  using namespace ckpt::cli;
  return run({.name = "ckpt-compress",
              .synopsis = {"[options] STORE[@STEP]...", "[--encode=HOW] [--level=N] [--max-chain=N] -"},
              .summary = "Encodes committed checkpoints anew: what they hold stays the same, bit for bit.",
              .exits = exit_table("done, also if nothing got smaller", "")},
             argc, argv, body);
}
