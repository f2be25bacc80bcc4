// SPDX-License-Identifier: Apache-2.0
// ckpt-prune: removes checkpoints by a policy, pins and unpins them; says nothing when all is well.
#include <fmt/format.h>
#include <ckpt/address.hpp>
#include <ckpt/prune.hpp>

#include <ctime>

#include "cli/metrics_file.hpp"
#include "cli/program.hpp"
#include "prune_report.hpp"

namespace ckpt::cli {
namespace {

constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();

[[noreturn]] void malformed(const std::string& text, std::string_view form) {
  throw Error(Errc::invalid_argument, fmt::format("'{}' is not {}", text, form));
}

std::string before_colon(const std::string& text, std::string_view form) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == text.size()) malformed(text, form);
  return text.substr(0, colon);
}

/// A key may hold colons, too.
KeepBest parse_best(const std::string& text) {
  const std::string count = before_colon(text, "N:KEY, N:KEY:min or N:KEY:max");
  KeepBest best{.count = parse_number(count, 1, most), .key = text.substr(count.size() + 1)};
  best.highest = best.key.ends_with(":max");
  if (best.highest || best.key.ends_with(":min")) best.key.resize(best.key.size() - 4);
  if (best.key.empty()) malformed(text, "N:KEY, N:KEY:min or N:KEY:max");
  return best;
}

DropAfter parse_drop(const std::string& text) {
  const std::string count = before_colon(text, "N:PATTERN");
  return {.last = parse_number(count, 1, most), .pattern = text.substr(count.size() + 1)};
}

std::string text_of(const KeepBest& best) {
  return fmt::format("{}:{}:{}", best.count, best.key, best.highest ? "max" : "min");
}
std::string text_of(const DropAfter& drop) { return fmt::format("{}:{}", drop.last, drop.pattern); }
std::string text_of(std::uint64_t step) { return fmt::format("{}", step); }

template <class T>
void repeatable(CommandLine& line, std::string_view name, std::string metavar, std::string help, std::vector<T>& target,
                T (*parse)(const std::string&)) {
  line.option(
      name, std::move(metavar), std::move(help),
      [&target, parse](const std::string& text) { target.push_back(parse(text)); },
      [&target] {
        std::string all;
        for (const T& value : target) all += (all.empty() ? "" : ",") + text_of(value);
        return all;
      });
}

std::uint64_t parse_step(const std::string& text) { return parse_number(text, 0, max_step); }

void declare(CommandLine& line, PruneOptions& prune) {
  RetentionPolicy& policy = prune.policy;
  line.section("What stays; at least one of these");
  line.option("--keep-last", "N", "the newest N", policy.last, std::uint64_t{1});
  line.option("--keep-every", "STEPS", "steps that are multiples of STEPS", policy.every, std::uint64_t{1});
  line.option(
      "--keep-within", "AGE", "those not older than AGE, counted from the newest",
      [&policy](const std::string& text) { policy.within_seconds = parse_duration(text); },
      [&policy] { return policy.within_seconds ? number_text(*policy.within_seconds) : std::string(); });
  line.option("--keep-hourly", "N", "the newest of each of the last N hours that have one", policy.hourly,
              std::uint64_t{1});
  line.option("--keep-daily", "N", "the same for days, in UTC", policy.daily, std::uint64_t{1});
  line.option("--keep-weekly", "N", "the same for weeks, from Monday", policy.weekly, std::uint64_t{1});
  repeatable(line, "--keep-best", "N:KEY[:ORDER]", "the best N by --meta KEY; min, the default, or max", policy.best,
             parse_best);
  line.section("Exceptions; may be repeated");
  repeatable(line, "--keep", "STEP", "this one, too", policy.keep, parse_step);
  repeatable(line, "--remove", "STEP", "not this one; alone: nothing but this one goes", policy.remove, parse_step);
  repeatable(line, "--pin", "STEP", "this one from now on, until it's unpinned", prune.pin, parse_step);
  repeatable(line, "--unpin", "STEP", "end a pin", prune.unpin, parse_step);
  line.section("How");
  repeatable(line, "--drop-after", "N:PATTERN", "tensors that only the last N keep", policy.drop_after, parse_drop);
  line.flag("--verified", "remove nothing while a newer one is unverified", policy.verified);
  line.flag("-n,--dry-run", "decide, print it, change nothing", prune.dry_run);
}

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
  declare(program.line(), options);
  program.add_jobs_option();
  program.add_metrics_option();
  const auto operands = program.parse();
  if (!operands) return exit_done;
  if (operands->empty()) throw usage_error(program, "no STORE given");
  if (operands->size() > 1) throw usage_error(program, fmt::format("operand '{}' is one too many", (*operands)[1]));
  const Address address = parse_address(operands->front());
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
