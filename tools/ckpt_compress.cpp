// SPDX-License-Identifier: Apache-2.0
// ckpt-compress: encodes committed checkpoints anew, smaller or faster to read; says nothing when all is well.
#include <fmt/format.h>
#include <ckpt/address.hpp>
#include <ckpt/compress.hpp>

#include <algorithm>
#include <ctime>

#include "cli/metrics_file.hpp"
#include "cli/program.hpp"
#include "compress_report.hpp"

namespace ckpt::cli {
namespace {

constexpr const char* report_schema = "ckpt-compress/1";

void take_encode(CompressOptions& options, const std::string& text) {
  if (text != "fast" && text != "best") {
    throw Error(Errc::invalid_argument, fmt::format("'{}' is neither fast nor best", text));
  }
  options.encode = text == "fast" ? Encode::fast : Encode::best;
}

void take_base(CompressOptions& options, const std::string& text) {
  if (text == "auto")
    options.base = BaseChoice::automatic;
  else if (text == "none")
    options.base = BaseChoice::none;
  else {
    options.base = BaseChoice::step;
    options.base_step = parse_number(text, 0, max_step);
  }
}

std::string base_text(const CompressOptions& options) {
  if (options.base == BaseChoice::step) return fmt::format("{}", options.base_step);
  return options.base == BaseChoice::none ? "none" : "auto";
}

struct Request {
  CompressOptions options;
  std::optional<unsigned> level;
  std::vector<Address> addresses;
};

void declare(CommandLine& line, Request& request) {
  CompressOptions& options = request.options;
  line.section("How it's encoded");
  line.option(
      "--encode", "HOW", "fast or best (default: best)",
      [&options](const std::string& text) { take_encode(options, text); },
      [&options] { return std::string(options.encode == Encode::fast ? "fast" : "best"); });
  line.option("--level", "N", "zstd's level, 1 to 19, for what repeats", request.level, 1U, 19U);
  line.option("--max-chain", "N", "at most N bases behind one another, 1 to 8", options.max_chain, 1U, 8U);
  line.section("What it's stored against");
  line.option(
      "--base", "STEP", "this one, none, or auto: the one before (default)",
      [&options](const std::string& text) { take_base(options, text); }, [&options] { return base_text(options); });
  line.flag("--newest-full", "the newest in full, each older one against the next newer", options.newest_full);
  line.flag("--across-ranks", "what ranks have in common is stored once", options.across_ranks);
  line.flag("--rebase", "without others, also if that takes more space", options.rebase);
  line.section("Which, and whether");
  line.option(
      "--older-than", "AGE", "those older than AGE, counted from the newest",
      [&options](const std::string& text) { options.older_than_seconds = parse_duration(text); },
      [&options] { return options.older_than_seconds ? number_text(*options.older_than_seconds) : std::string(); });
  line.flag("-n,--dry-run", "estimate what would come out, change nothing", options.dry_run);
}

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

int run_filter(Program& program, const Request& request) {
  const CompressOptions& given = request.options;
  if (given.base != BaseChoice::automatic || given.newest_full || given.across_ranks || given.rebase ||
      given.older_than_seconds || given.dry_run || program.metrics_file()) {
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
void take_store(Program& program, Request& request, const std::vector<std::string>& operands) {
  bool whole = false;
  for (const std::string& operand : operands) {
    if (operand == "-") throw usage_error(program, "'-' stands alone");
    const Address address = parse_address(operand);
    if (request.options.store.empty()) request.options.store = address.store;
    if (address.store != request.options.store) {
      throw usage_error(program, fmt::format("'{}' is in another store than '{}'", operand, operands.front()));
    }
    whole = whole || address.selector.kind == Selector::Kind::none;
    request.options.which.push_back(address.selector);
  }
  if (whole) request.options.which.clear();
}

int body(Program& program) {
  Request request;
  declare(program.line(), request);
  program.add_jobs_option();
  program.add_metrics_option();
  const auto operands = program.parse();
  if (!operands) return exit_done;
  if (operands->empty()) throw usage_error(program, "no STORE[@STEP] given");
  CompressOptions& options = request.options;
  if (request.level) options.level = static_cast<int>(*request.level);
  if (operands->size() == 1 && operands->front() == "-") return run_filter(program, request);
  take_store(program, request, *operands);
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
